// Registered memory through grdma: handles, reuse, read-only mappings, exhaustion, and the order of
// the end.
#include "plugin/mca/registration.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <vector>

#include "tests/unit/mca/fake_transport.h"
#include "tests/unit/mca/opal_session.h"

namespace mend::test {
namespace {

class RegistrationTest : public testing::Test {
 protected:
  RegistrationTest() { reset_fake(); }
  mca_btl_base_registration_handle_t* add(Session& session, void* base, std::size_t size,
                                          unsigned flags) {
    return session.module()->btl_register_mem(session.module(), nullptr, base, size, flags);
  }
  void remove(Session& session, mca_btl_base_registration_handle_t* handle) {
    EXPECT_EQ(session.module()->btl_deregister_mem(session.module(), handle), OPAL_SUCCESS);
  }
  alignas(4096) std::array<std::byte, 16384> memory_{};
};

TEST(Access, IsTheLeastThatDoes) {
  EXPECT_EQ(mca::access_of(0), 0u);
  EXPECT_EQ(mca::access_of(MCA_BTL_REG_FLAG_REMOTE_READ), unsigned{conn::kRemoteRead});
  EXPECT_EQ(mca::access_of(MCA_BTL_REG_FLAG_LOCAL_WRITE), unsigned{conn::kLocalWrite});
  // Verbs wants local write with remote write; atomics are executed by the target's processor.
  EXPECT_EQ(mca::access_of(MCA_BTL_REG_FLAG_REMOTE_WRITE),
            unsigned{conn::kRemoteWrite | conn::kLocalWrite});
  EXPECT_EQ(mca::access_of(MCA_BTL_REG_FLAG_REMOTE_ATOMIC), unsigned{conn::kLocalWrite});
  EXPECT_EQ(mca::access_of(MCA_BTL_REG_FLAG_ACCESS_ANY),
            unsigned{conn::kLocalWrite | conn::kRemoteRead | conn::kRemoteWrite});
}

TEST_F(RegistrationTest, HandleCarriesKeysOfEveryRail) {
  fake().rails.resize(2, fake().rails.front());
  Session session;
  ASSERT_EQ(session.count(), 2);
  auto* handle = add(session, memory_.data(), memory_.size(), MCA_BTL_REG_FLAG_ACCESS_ANY);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(handle->generation, 7u);
  EXPECT_NE(handle->reg_id, 0u);
  EXPECT_EQ(handle->nrails, 2u);
  EXPECT_EQ(handle->rkey[0], 200u);
  EXPECT_EQ(handle->rkey[1], 201u);
  EXPECT_EQ(handle->rkey[2], 0u);
  EXPECT_EQ(mca::local_keys_of(*handle).lkey[1].value, 101u);
  ops::RemoteKeys keys;
  mca::copy_remote_keys(*handle, keys);
  EXPECT_EQ(keys.rkey[1].value, 201u);
  EXPECT_EQ(session.module()->btl_registration_handle_size, sizeof *handle);
  remove(session, handle);
}

TEST_F(RegistrationTest, SameMemoryInUseIsRegisteredOnce) {
  Session session;
  auto* first = add(session, memory_.data(), 8192, MCA_BTL_REG_FLAG_ACCESS_ANY);
  auto* second = add(session, memory_.data() + 100, 1000, MCA_BTL_REG_FLAG_REMOTE_READ);
  EXPECT_EQ(fake().accesses.size(), 1u);
  EXPECT_EQ(first, second);
  remove(session, first);
  remove(session, second);
}

TEST_F(RegistrationTest, ReadOnlyMemoryIsRegisteredForReading) {
  fake().deny_write = true;
  Session session;
  auto* handle = add(session, memory_.data(), 4096, MCA_BTL_REG_FLAG_ACCESS_ANY);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(fake().accesses.back(), unsigned{conn::kRemoteRead});
  remove(session, handle);
  // The message was not for the user: nothing is wrong.
  EXPECT_EQ(session.finish(), "");
}

TEST_F(RegistrationTest, WhoeverMustWriteIsNotFobbedOffWithReading) {
  fake().deny_write = true;
  Session session;
  testing::internal::CaptureStderr();
  EXPECT_EQ(add(session, memory_.data(), 4096, MCA_BTL_REG_FLAG_LOCAL_WRITE), nullptr);
  EXPECT_EQ(add(session, memory_.data(), 4096, MCA_BTL_REG_FLAG_LOCAL_WRITE), nullptr);
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string text = "the mapping is read-only";
  ASSERT_NE(said.find(text), std::string::npos) << said;
  EXPECT_EQ(said.find(text, said.find(text) + 1), std::string::npos) << "said twice";
}

TEST_F(RegistrationTest, ExhaustionEvictsAndTriesAgain) {
  setenv("OMPI_MCA_mpi_leave_pinned", "1", 1);
  Session session;
  auto* old = add(session, memory_.data(), 4096, MCA_BTL_REG_FLAG_ACCESS_ANY);
  ASSERT_NE(old, nullptr);
  remove(session, old);
  if (fake().regions_out == 0)
    GTEST_SKIP() << "grdma keeps nothing here, so nothing can be evicted";
  fake().refuse_registrations = 1;
  testing::internal::CaptureStderr();
  auto* handle = add(session, memory_.data() + 8192, 4096, MCA_BTL_REG_FLAG_ACCESS_ANY);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(fake().regions_out, 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // it worked in the end
  remove(session, handle);
}

TEST_F(RegistrationTest, ExhaustionWithoutEndIsSaidOnceAndCopiedAround) {
  fake().refuse_registrations = 1000;
  Session session;
  testing::internal::CaptureStderr();
  EXPECT_EQ(add(session, memory_.data(), 4096, MCA_BTL_REG_FLAG_REMOTE_READ), nullptr);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the limit of locked memory is reached"), std::string::npos) << said;
  EXPECT_NE(said.find("4096 bytes"), std::string::npos) << said;
}

TEST_F(RegistrationTest, NothingIsLeftAtTheEndEvenIfStillInUse) {
  Session session;
  ASSERT_NE(add(session, memory_.data(), 4096, MCA_BTL_REG_FLAG_ACCESS_ANY), nullptr);
  session.finish();
  EXPECT_EQ(fake().regions_out, 0);
  EXPECT_EQ(fake().closed_before_regions, 1);  // traffic ends before its memory goes
  EXPECT_EQ(fake().alive, 0);
}

}  // namespace
}  // namespace mend::test
