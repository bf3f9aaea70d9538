// Extended verbs: ibv_create_*_ex, the ibv_wr_* builder of ibv_qp_ex and the polling of ibv_cq_ex.
// Thread contract of the builder as in the standard: wr_start takes the send queue, wr_complete or
// wr_abort gives it back.
#pragma once

#include <infiniband/verbs.h>

#include "softhca/engine/qp.h"

namespace softhca {

ibv_cq_ex* ext_create_cq(ibv_context* context, ibv_cq_init_attr_ex* init);
ibv_qp* ext_create_qp(ibv_context* context, ibv_qp_init_attr_ex* init);
ibv_srq* ext_create_srq(ibv_context* context, ibv_srq_init_attr_ex* init);

// Installs the builder in a QP that was created with send_ops_flags.
void install_builder(Qp& qp);

}  // namespace softhca
