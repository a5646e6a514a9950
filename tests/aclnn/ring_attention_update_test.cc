#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnnop/aclnn_ring_attention_update.h"
#include "fa/merge.h"
#include "support/cases/random_values.h"
#include "support/tensor.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeads = 3, kSize = 20, kCopies = 8;

enum class Version : uint8_t { kV1, kV2 };
enum class Order : uint8_t { kSbh, kBySequence, kLikeTnd };

/// One merge, which runs through C++ and through the interface. The statistics are [B,N,S] or [T,N], as in C++.
struct Case {
  DType dtype = DType::kF32;
  Order order = Order::kSbh;
  Version version = Version::kV1;
  std::vector<int64_t> lengths = {7, 0, 12, 1};  ///< not for SBH, which has batch() sequences of 5 rows
  bool in_place = false;
  bool short_integers = false;

  [[nodiscard]] bool packed() const { return order != Order::kSbh; }
  [[nodiscard]] int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
  [[nodiscard]] int64_t rows() const {
    if (!packed()) return batch() * 5;
    int64_t sum = 0;
    for (const int64_t length : lengths) sum += length;
    return sum;
  }
};

class Merged {
 public:
  explicit Merged(const Case& c) : case_(c) {
    const int64_t rows = c.rows();
    for (auto* out : {&prev_out_, &cur_out_, &cpp_out_, &face_out_}) {
      *out = Tensor(c.dtype, c.packed() ? Dims{rows, kHeads, kSize} : Dims{5, c.batch(), kHeads * kSize}, {});
    }
    for (int64_t x = 0; x < rows * kHeads * kSize; ++x) {
      prev_out_.Set(x, RandomNormal(1, Tag::kQ, {x}));
      cur_out_.Set(x, RandomNormal(1, Tag::kK, {x}));
    }
    for (int64_t x = 0; x < rows * kHeads; ++x) {
      prev_max_.push_back(static_cast<float>(RandomNormal(1, Tag::kV, {x})));
      cur_max_.push_back(static_cast<float>(RandomNormal(1, Tag::kPse, {x})));
      prev_sum_.push_back(1 + static_cast<float>(RandomUniform(1, Tag::kSink, {x})));
      cur_sum_.push_back(1 + static_cast<float>(RandomUniform(1, Tag::kDOut, {x})));
    }
    prev_max_[4] = -FLT_MAX;  // these are the statistics of a row without keys
    prev_sum_[4] = FLT_MAX;
  }

  [[nodiscard]] Status RunCpp() {
    const Case& c = case_;
    const Dims shape = c.packed() ? Dims{c.rows(), kHeads} : Dims{c.batch(), kHeads, 5};
    const auto view = [&](std::vector<float>& values) {
      return MutableTensorView{values.data(), DType::kF32, shape, {}};
    };
    max_.assign(prev_max_.size(), NAN);
    sum_ = max_;
    MergeArgs args;
    args.prev_out = prev_out_.view();
    args.prev_max = view(prev_max_);
    args.prev_sum = view(prev_sum_);
    args.cur_out = cur_out_.view();
    args.cur_max = view(cur_max_);
    args.cur_sum = view(cur_sum_);
    args.out = cpp_out_.mutable_view();
    args.softmax_max = view(max_);
    args.softmax_sum = view(sum_);
    return MergePartials(args, {.layout = c.packed() ? Layout::kTND : Layout::kSBH});
  }

  [[nodiscard]] aclError RunFace() {
    const Case& c = case_;
    const std::vector<int64_t> statistics = {c.packed() ? c.rows() : c.batch(), kHeads, c.packed() ? kCopies : 5};
    std::vector<int64_t> shape = statistics;
    if (!c.packed()) shape.push_back(kCopies);
    std::vector<float> prev_max = Placed(prev_max_), prev_sum = Placed(prev_sum_);
    std::vector<float> cur_max = Placed(cur_max_), cur_sum = Placed(cur_sum_);
    face_max_.assign(prev_max.size(), NAN);
    face_sum_ = face_max_;
    const auto tensor = [&](std::vector<float>& values) { return handles_.Tensor(values.data(), ACL_FLOAT, shape); };
    std::vector<int64_t> sums = {0};
    for (const int64_t length : c.lengths) sums.push_back(sums.back() + length);
    std::vector<int32_t> short_sums(sums.begin(), sums.end());
    const auto count = static_cast<int64_t>(sums.size());
    aclTensor* lengths = c.short_integers ? handles_.Tensor(short_sums.data(), ACL_INT32, {count})
                                          : handles_.Tensor(sums.data(), ACL_INT64, {count});
    aclTensor* out = handles_.Tensor(c.in_place ? prev_out_.view() : face_out_.view());
    aclTensor* max = tensor(c.in_place ? prev_max : face_max_);
    aclTensor* sum = tensor(c.in_place ? prev_sum : face_sum_);
    std::string layout = c.packed() ? "TND" : "SBH";
    std::string softmax_layout = c.order == Order::kLikeTnd ? "TND" : "";
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    aclnnStatus status = ACLNN_SUCCESS;
    if (c.version == Version::kV1) {
      status = aclnnRingAttentionUpdateGetWorkspaceSize(
          handles_.Tensor(prev_out_.view()), tensor(prev_max), tensor(prev_sum), handles_.Tensor(cur_out_.view()),
          tensor(cur_max), tensor(cur_sum), c.packed() ? lengths : nullptr, layout.data(), out, max, sum, &size,
          &executor);
    } else {
      status = aclnnRingAttentionUpdateV2GetWorkspaceSize(handles_.Tensor(prev_out_.view()), tensor(prev_max),
                                                          tensor(prev_sum), handles_.Tensor(cur_out_.view()),
                                                          tensor(cur_max), tensor(cur_sum), lengths, layout.data(),
                                                          softmax_layout.data(), out, max, sum, &size, &executor);
    }
    if (status != ACLNN_SUCCESS) return status;
    EXPECT_EQ(size, 0U) << "nothing to move";
    status = c.version == Version::kV1 ? aclnnRingAttentionUpdate(nullptr, size, executor, nullptr)
                                       : aclnnRingAttentionUpdateV2(nullptr, size, executor, nullptr);
    if (status != ACLNN_SUCCESS) return status;
    const aclError error = aclrtSynchronizeStream(nullptr);
    if (c.in_place) {
      face_max_ = prev_max;
      face_sum_ = prev_sum;
    }
    return error;
  }

  void ExpectEqual() const {
    const Tensor& out = case_.in_place ? prev_out_ : face_out_;
    const size_t bytes = static_cast<size_t>(case_.rows() * kHeads * kSize) * SizeOf(case_.dtype);
    EXPECT_EQ(std::memcmp(out.view().data, cpp_out_.view().data, bytes), 0);
    EXPECT_EQ(face_max_, Placed(max_));
    EXPECT_EQ(face_sum_, Placed(sum_));
  }

 private:
  // Returns the values in the device's order, each eight times.
  [[nodiscard]] std::vector<float> Placed(const std::vector<float>& values) const {
    std::vector<float> placed(values.size() * kCopies);
    const auto put = [&](size_t unit, float value) {
      for (size_t copy = 0; copy < kCopies; ++copy) placed[unit * kCopies + copy] = value;
    };
    if (case_.order != Order::kBySequence) {
      for (size_t x = 0; x < values.size(); ++x) put(x, values[x]);
      return placed;
    }
    size_t unit = 0;
    int64_t begin = 0;
    for (const int64_t length : case_.lengths) {
      for (int64_t n = 0; n < kHeads; ++n) {
        for (int64_t t = begin; t < begin + length; ++t) put(unit++, values[static_cast<size_t>(t * kHeads + n)]);
      }
      begin += length;
    }
    return placed;
  }

  Case case_;
  Tensor prev_out_, cur_out_, cpp_out_, face_out_;
  std::vector<float> prev_max_, prev_sum_, cur_max_, cur_sum_;
  std::vector<float> max_, sum_, face_max_, face_sum_;
  Handles handles_;
};

void ExpectTheBitsOfCpp(const Case& c) {
  Merged merged(c);
  ASSERT_TRUE(merged.RunCpp().ok());
  ASSERT_EQ(merged.RunFace(), ACL_SUCCESS) << aclGetRecentErrMsg();
  merged.ExpectEqual();
}

TEST(RingAttentionUpdate, GivesTheBitsOfCppInEveryLayoutAndType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ExpectTheBitsOfCpp({.dtype = dtype, .order = Order::kSbh, .version = Version::kV1});
    ExpectTheBitsOfCpp({.dtype = dtype, .order = Order::kSbh, .version = Version::kV2});
    ExpectTheBitsOfCpp({.dtype = dtype, .order = Order::kBySequence, .version = Version::kV1});
    ExpectTheBitsOfCpp({.dtype = dtype, .order = Order::kBySequence, .version = Version::kV2});
    ExpectTheBitsOfCpp({.dtype = dtype, .order = Order::kLikeTnd, .version = Version::kV2});
  }
}

TEST(RingAttentionUpdate, MayReplaceThePreviousPartial) {
  for (const Order order : {Order::kSbh, Order::kBySequence, Order::kLikeTnd}) {
    ExpectTheBitsOfCpp({.order = order, .version = Version::kV2, .in_place = true});
  }
}

TEST(RingAttentionUpdate, TakesLengthsOfFourBytes) {
  ExpectTheBitsOfCpp({.order = Order::kBySequence, .short_integers = true});
}

/// A call of RingAttentionUpdate. Tests replace some of its parts.
class RingCall : public ::testing::Test {
 protected:
  RingCall() : values_(4 * kHeads * kSize, 1.0F), statistics_(4 * kHeads * kCopies, 1.0F) {
    out_.assign(values_.size(), -7.0F);
    out_max_.assign(statistics_.size(), -7.0F);
    out_sum_ = out_max_;
    attention_ = handles_.Tensor(values_.data(), ACL_FLOAT, {4, kHeads, kSize});
    statistic_ = handles_.Tensor(statistics_.data(), ACL_FLOAT, {4, kHeads, kCopies});
    attention_out_ = handles_.Tensor(out_.data(), ACL_FLOAT, {4, kHeads, kSize});
    max_out_ = handles_.Tensor(out_max_.data(), ACL_FLOAT, {4, kHeads, kCopies});
    sum_out_ = handles_.Tensor(out_sum_.data(), ACL_FLOAT, {4, kHeads, kCopies});
    lengths_ = handles_.Tensor(sums_.data(), ACL_INT64, {3});
  }

  aclnnStatus Plan() {
    return aclnnRingAttentionUpdateV2GetWorkspaceSize(attention_, statistic_, statistic_, attention_, statistic_,
                                                      statistic_, lengths_, layout_.data(), softmax_layout_.data(),
                                                      attention_out_, max_out_, sum_out_, &size_, &executor_);
  }

  Handles handles_;
  std::vector<float> values_, statistics_, out_, out_max_, out_sum_;
  std::vector<int64_t> sums_ = {0, 3, 4};
  aclTensor *attention_, *statistic_, *attention_out_, *max_out_, *sum_out_, *lengths_;
  std::string layout_ = "TND", softmax_layout_;
  uint64_t size_ = 0;
  aclOpExecutor* executor_ = nullptr;
};

TEST_F(RingCall, RefusesUnknownLayouts) {
  ASSERT_EQ(Plan(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  aclDestroyAclOpExecutor(executor_);
  layout_ = "BNSD";
  EXPECT_EQ(Plan(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("inputLayout"));
  layout_ = "TND";
  softmax_layout_ = "same_as_input";
  EXPECT_EQ(Plan(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("inputSoftmaxLayout"));
}

TEST_F(RingCall, NamesTheTensorThatDoesNotFit) {
  statistic_ = handles_.Tensor(statistics_.data(), ACL_FLOAT, {3, kHeads, kCopies});
  EXPECT_EQ(Plan(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("prevSoftmaxMax.shape[0]=3, want 4"));
  statistic_ = handles_.Tensor(statistics_.data(), ACL_FLOAT16, {4, kHeads, kCopies});
  EXPECT_EQ(Plan(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("prevSoftmaxMax.dtype=f16, want f32"));
}

TEST_F(RingCall, WantsLengthsForStatisticsBySequence) {
  lengths_ = nullptr;
  EXPECT_EQ(Plan(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("actualSeqQlen: missing"));
  softmax_layout_ = "TND";
  EXPECT_EQ(Plan(), ACLNN_SUCCESS) << "they mean nothing there";
  aclDestroyAclOpExecutor(executor_);
}

TEST_F(RingCall, NullsAreNamed) {
  max_out_ = nullptr;
  EXPECT_EQ(Plan(), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("softmaxMax: null"));
}

TEST_F(RingCall, BadLengthsAreFoundOnTheStreamAndNothingIsWritten) {
  for (const std::vector<int64_t>& bad : {std::vector<int64_t>{1, 3, 4}, {0, 5, 4}, {0, 3, 5}, {0, 2, 3}, {0, -1, 4}}) {
    sums_ = bad;
    lengths_ = handles_.Tensor(sums_.data(), ACL_INT64, {3});
    ASSERT_EQ(Plan(), ACLNN_SUCCESS);
    ASSERT_EQ(aclnnRingAttentionUpdateV2(nullptr, 0, executor_, nullptr), ACLNN_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("actualSeqQlen"));
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS) << "reported once";
    for (const auto* written : {&out_, &out_max_, &out_sum_}) {
      for (const float value : *written) ASSERT_EQ(value, -7.0F);
    }
  }
}

}  // namespace
}  // namespace fa::test
