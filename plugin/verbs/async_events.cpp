#include "plugin/verbs/async_events.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace mend::verbs {

// By number: rdma-core goes on adding events.
EventSubject event_subject(ibv_event_type type) {
  switch (static_cast<unsigned>(type)) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return EventSubject::QueuePair;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return EventSubject::Port;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return EventSubject::SharedQueue;
    case IBV_EVENT_CQ_ERR:
      return EventSubject::CompletionQueue;
    case IBV_EVENT_DEVICE_FATAL:
      return EventSubject::Device;
    case IBV_EVENT_WQ_FATAL:
      break;
  }
  return EventSubject::Other;
}

const char* event_name(ibv_event_type type) {
  switch (static_cast<unsigned>(type)) {
    case IBV_EVENT_CQ_ERR:
      return "CQ_ERR";
    case IBV_EVENT_QP_FATAL:
      return "QP_FATAL";
    case IBV_EVENT_QP_REQ_ERR:
      return "QP_REQ_ERR";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "QP_ACCESS_ERR";
    case IBV_EVENT_COMM_EST:
      return "COMM_EST";
    case IBV_EVENT_SQ_DRAINED:
      return "SQ_DRAINED";
    case IBV_EVENT_PATH_MIG:
      return "PATH_MIG";
    case IBV_EVENT_PATH_MIG_ERR:
      return "PATH_MIG_ERR";
    case IBV_EVENT_DEVICE_FATAL:
      return "DEVICE_FATAL";
    case IBV_EVENT_PORT_ACTIVE:
      return "PORT_ACTIVE";
    case IBV_EVENT_PORT_ERR:
      return "PORT_ERR";
    case IBV_EVENT_LID_CHANGE:
      return "LID_CHANGE";
    case IBV_EVENT_PKEY_CHANGE:
      return "PKEY_CHANGE";
    case IBV_EVENT_SM_CHANGE:
      return "SM_CHANGE";
    case IBV_EVENT_SRQ_ERR:
      return "SRQ_ERR";
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return "SRQ_LIMIT_REACHED";
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return "QP_LAST_WQE_REACHED";
    case IBV_EVENT_CLIENT_REREGISTER:
      return "CLIENT_REREGISTER";
    case IBV_EVENT_GID_CHANGE:
      return "GID_CHANGE";
    case IBV_EVENT_WQ_FATAL:
      return "WQ_FATAL";
  }
  return "unknown event";
}

Result<void> prepare_async_events(ibv_context* context) {
  const int flags = fcntl(context->async_fd, F_GETFL);
  if (flags >= 0 && fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) >= 0) return {};
  const int code = errno;
  return fail(code, "async_fd",
              fmt::format("the event channel of {} cannot be made non-blocking: {}",
                          context->device->name, std::strerror(code)));
}

bool next_async_event(const Api& api, ibv_context* context, AsyncEvent& event) {
  ibv_async_event raw{};
  if (api.get_async_event(context, &raw) != 0) return false;
  event = AsyncEvent{};
  event.type = raw.event_type;
  event.subject = event_subject(raw.event_type);
  switch (event.subject) {
    case EventSubject::QueuePair:
      event.qpn = Qpn{raw.element.qp->qp_num};
      break;
    case EventSubject::Port:
      event.port = static_cast<std::uint8_t>(raw.element.port_num);
      break;
    case EventSubject::SharedQueue:
      event.srq = raw.element.srq;
      break;
    case EventSubject::CompletionQueue:
      event.cq = raw.element.cq;
      break;
    case EventSubject::Device:
    case EventSubject::Other:
      break;
  }
  api.ack_async_event(&raw);
  return true;
}

}  // namespace mend::verbs
