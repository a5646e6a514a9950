// Tests the device's operators that scatter and gather rows of caches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnn/calls/run_phases.h"
#include "aclnnop/aclnn_gather_pa_kv_cache.h"
#include "aclnnop/aclnn_scatter_pa_cache.h"
#include "aclnnop/aclnn_scatter_pa_kv_cache.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

char* Text(const char* text) { return const_cast<char*>(text); }

/// A scatter of 3 rows with 2 heads of 4 columns. A test may replace any of its arguments.
class ScatterPaKvCache : public ::testing::Test {
 protected:
  ScatterPaKvCache() {
    std::iota(key_.begin(), key_.end(), uint16_t{1});
    std::iota(value_.begin(), value_.end(), uint16_t{101});
  }

  aclError Run(const char* cache_mode, const char* scatter_mode = nullptr) {
    aclTensor* key = handles_.Tensor(key_.data(), dtype_, key_shape_);
    aclTensor* value = handles_.Tensor(value_.data(), dtype_, value_shape_);
    aclTensor* key_cache = Cache(key_cache_);
    aclTensor* value_cache = value_shape_ == std::vector<int64_t>{0} ? handles_.Tensor(value_cache_.data(), dtype_, {0})
                                                                     : Cache(value_cache_);
    aclTensor* slots = handles_.Tensor(slots_.data(), ACL_INT64, {3});
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnScatterPaKvCacheGetWorkspaceSize(key, key_cache, slots, value, value_cache, compress_lens_,
                                                       compress_seq_offset_, seq_lens_, Text(cache_mode),
                                                       Text(scatter_mode), strides_, offsets_, size, executor);
        },
        aclnnScatterPaKvCache);
  }

  aclTensor* Cache(std::vector<uint16_t>& cache) {
    tensors_.push_back(aclCreateTensor(cache_shape_.data(), cache_shape_.size(), dtype_, nullptr, 0, format_,
                                       cache_shape_.data(), cache_shape_.size(), cache.data()));
    return tensors_.back();
  }
  void TearDown() override {
    for (const aclTensor* tensor : tensors_) aclDestroyTensor(tensor);
  }

  /// Returns a cache of 2 pages of 2 rows that holds row t at slots_[t]. The offset of an element is place(page, row,
  /// head, column).
  template <typename Place>
  [[nodiscard]] std::vector<uint16_t> Want(const std::vector<uint16_t>& rows, Place place) const {
    std::vector<uint16_t> want(32, 7);
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t x = 0; x < 8 && slots_[t] >= 0; ++x) {
        want[place(slots_[t] / 2, slots_[t] % 2, x / 4, x % 4)] = rows[t * 8 + x];
      }
    }
    return want;
  }

  Handles handles_;
  std::vector<aclTensor*> tensors_;
  std::vector<uint16_t> key_ = std::vector<uint16_t>(24), value_ = key_;
  std::vector<uint16_t> key_cache_ = std::vector<uint16_t>(32, 7), value_cache_ = key_cache_;
  std::vector<int64_t> slots_ = {3, -1, 0};
  std::vector<int64_t> key_shape_ = {3, 2, 4}, value_shape_ = key_shape_, cache_shape_ = {2, 2, 2, 4};
  aclDataType dtype_ = ACL_BF16;
  aclFormat format_ = ACL_FORMAT_ND;
  const aclTensor *compress_lens_ = nullptr, *compress_seq_offset_ = nullptr, *seq_lens_ = nullptr;
  const aclIntArray *strides_ = nullptr, *offsets_ = nullptr;
};

int64_t NormPlace(int64_t page, int64_t row, int64_t n, int64_t d) { return ((page * 2 + row) * 2 + n) * 4 + d; }

TEST_F(ScatterPaKvCache, SceneTwoOfAnyTypeOfTwoBytes) {
  for (const aclDataType dtype : {ACL_BF16, ACL_FLOAT16, ACL_INT16, ACL_UINT16}) {
    dtype_ = dtype;
    for (const char* mode : {static_cast<const char*>(nullptr), "Norm"}) {
      key_cache_.assign(32, 7);
      value_cache_.assign(32, 7);
      ASSERT_EQ(Run(mode, "None"), ACL_SUCCESS) << aclGetRecentErrMsg();
      EXPECT_EQ(key_cache_, Want(key_, NormPlace));
      EXPECT_EQ(value_cache_, Want(value_, NormPlace));
    }
  }
}

TEST_F(ScatterPaKvCache, SceneOneHasChunks) {
  format_ = ACL_FORMAT_FRACTAL_NZ;
  const auto place = [](int64_t page, int64_t row, int64_t n, int64_t d) {
    return (((page * 2 + n) * 2 + d / 2) * 2 + row) * 2 + d % 2;
  };
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 2, 2, 2, 2}, {2, 4, 2, 2}}) {
    cache_shape_ = shape;
    key_cache_.assign(32, 7);
    value_cache_.assign(32, 7);
    ASSERT_EQ(Run("PA_NZ"), ACL_SUCCESS) << aclGetRecentErrMsg();
    EXPECT_EQ(key_cache_, Want(key_, place));
    EXPECT_EQ(value_cache_, Want(value_, place));
  }
  cache_shape_ = {2, 2, 2, 4};
  EXPECT_EQ(Run("Norm"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("keyCacheRef: aclFormat 29"));
}

TEST_F(ScatterPaKvCache, SceneSevenHasHeadsFirst) {
  ASSERT_EQ(Run("Norm", "NHSD"), ACL_SUCCESS) << aclGetRecentErrMsg();
  const auto place = [](int64_t page, int64_t row, int64_t n, int64_t d) { return ((page * 2 + n) * 2 + row) * 4 + d; };
  EXPECT_EQ(key_cache_, Want(key_, place));
  EXPECT_EQ(value_cache_, Want(value_, place));
}

TEST_F(ScatterPaKvCache, SceneSixWritesKeysOnly) {
  value_shape_ = {0};
  ASSERT_EQ(Run("Norm"), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(key_cache_, Want(key_, NormPlace));
  EXPECT_EQ(value_cache_, std::vector<uint16_t>(32, 7));
}

TEST_F(ScatterPaKvCache, SceneSixCountsBothCachesAsOutputs) {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  aclTensor* value_cache = Cache(value_cache_);
  ASSERT_EQ(aclnnScatterPaKvCacheGetWorkspaceSize(
                handles_.Tensor(key_.data(), dtype_, key_shape_), Cache(key_cache_),
                handles_.Tensor(slots_.data(), ACL_INT64, {3}), handles_.Tensor(value_.data(), dtype_, {0}),
                value_cache, nullptr, nullptr, nullptr, Text("Norm"), nullptr, nullptr, nullptr, &size, &executor),
            ACL_SUCCESS)
      << aclGetRecentErrMsg();
  EXPECT_EQ(aclSetOutputTensorAddr(executor, 1, value_cache, value_cache_.data()), ACL_SUCCESS);
  EXPECT_EQ(aclSetOutputTensorAddr(executor, 2, value_cache, value_cache_.data()), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), ACL_SUCCESS);
}

TEST_F(ScatterPaKvCache, EmptyTensorsNeedNoAddress) {
  // The first call has no rows. The second call has no pages, so every slot is negative.
  const auto run = [&](int64_t rows, int64_t pages, int64_t* slots) {
    const auto cache = [&](std::vector<uint16_t>& values) {
      return handles_.Tensor(pages > 0 ? values.data() : nullptr, dtype_, {pages, 2, 2, 4});
    };
    const auto row = [&](std::vector<uint16_t>& values) {
      return handles_.Tensor(rows > 0 ? values.data() : nullptr, dtype_, {rows, 2, 4});
    };
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnScatterPaKvCacheGetWorkspaceSize(
              row(key_), cache(key_cache_), handles_.Tensor(slots, ACL_INT64, {rows}), row(value_), cache(value_cache_),
              nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, size, executor);
        },
        aclnnScatterPaKvCache);
  };
  EXPECT_EQ(run(0, 2, nullptr), ACL_SUCCESS) << aclGetRecentErrMsg();
  slots_ = {-1, -2, -1};
  EXPECT_EQ(run(3, 0, slots_.data()), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(key_cache_, std::vector<uint16_t>(32, 7));
  EXPECT_EQ(value_cache_, key_cache_);
  EXPECT_EQ(RunPhases(
                [&](uint64_t* size, aclOpExecutor** executor) {
                  return aclnnScatterPaCacheGetWorkspaceSize(
                      handles_.Tensor(nullptr, dtype_, {0, 2, 4}), Cache(key_cache_),
                      handles_.Tensor(nullptr, ACL_INT64, {0}), nullptr, nullptr, nullptr, nullptr, size, executor);
                },
                aclnnScatterPaCache),
            ACL_SUCCESS)
      << aclGetRecentErrMsg();
}

TEST_F(ScatterPaKvCache, NctReadsRowsFromAFusedTensor) {
  // Rows of key and value, 8 elements each, alternate in one buffer of 48 elements.
  std::vector<uint16_t> fused(48);
  for (size_t x = 0; x < 24; ++x) {
    fused[x / 8 * 16 + x % 8] = key_[x];
    fused[x / 8 * 16 + 8 + x % 8] = value_[x];
  }
  const std::vector<uint16_t> key = key_, value = value_;
  key_ = value_ = fused;
  strides_ = handles_.Array({16, 16});
  offsets_ = handles_.Array({0, 8});
  EXPECT_EQ(Run("Norm", "Nct"), ACLNN_ERR_PARAM_INVALID) << "the tensors claim 24 elements";
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("strides[0]=16, want rows inside the 24 elements of key"));
  const std::vector<int64_t> storage = {48}, shape = {3, 2, 4};
  const auto tensor = [&](std::vector<uint16_t>& memory) {
    tensors_.push_back(
        aclCreateTensor(shape.data(), 3, ACL_BF16, nullptr, 0, ACL_FORMAT_ND, storage.data(), 1, memory.data()));
    return tensors_.back();
  };
  ASSERT_EQ(RunPhases(
                [&](uint64_t* size, aclOpExecutor** executor) {
                  return aclnnScatterPaKvCacheGetWorkspaceSize(
                      tensor(key_), Cache(key_cache_), handles_.Tensor(slots_.data(), ACL_INT64, {3}), tensor(value_),
                      Cache(value_cache_), nullptr, nullptr, nullptr, nullptr, Text("Nct"), strides_, offsets_, size,
                      executor);
                },
                aclnnScatterPaKvCache),
            ACL_SUCCESS)
      << aclGetRecentErrMsg();
  EXPECT_EQ(key_cache_, Want(key, NormPlace));
  EXPECT_EQ(value_cache_, Want(value, NormPlace));
  offsets_ = handles_.Array({-1, 8});
  EXPECT_EQ(Run("Norm", "Nct"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("offsets[0]=-1"));
}

TEST_F(ScatterPaKvCache, NctWantsAnEntryForKeyAndOneForValue) {
  strides_ = handles_.Array({8});
  offsets_ = handles_.Array({0, 0});
  EXPECT_EQ(Run("Norm", "Nct"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("strides: want one entry for key and one for value"));
  strides_ = handles_.Array({8, 8});
  offsets_ = handles_.Array({0});
  EXPECT_EQ(Run("Norm", "Nct"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("offsets: want one entry for key and one for value"));
  EXPECT_EQ(key_cache_, std::vector<uint16_t>(32, 7));
  value_shape_ = {0};
  strides_ = handles_.Array({8});
  ASSERT_EQ(Run("Norm", "Nct"), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(key_cache_, Want(key_, NormPlace));
}

TEST_F(ScatterPaKvCache, NctOfSizesThatDoNotCountIsRefused) {
  constexpr int64_t kMost = INT64_MAX;
  strides_ = handles_.Array({kMost, 8});
  offsets_ = handles_.Array({23, 0});
  EXPECT_EQ(Run("Norm", "Nct"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("strides[0]=9223372036854775807, want rows inside"));
  strides_ = handles_.Array({0, 8});
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, kMost, kMost}, {0, kMost, kMost}}) {
    key_shape_ = shape;
    EXPECT_EQ(Run("Norm", "Nct"), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("key"));
  }
}

TEST_F(ScatterPaKvCache, RefusesCompressedHeadsByName) {
  for (const char* mode : {"Alibi", "Rope", "Omni"}) {
    EXPECT_EQ(Run("Norm", mode), ACLNN_ERR_PARAM_INVALID);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr(std::string("scatterMode=\"") + mode + "\" is not served"));
  }
  key_shape_ = {3, 1, 2, 4};
  EXPECT_EQ(Run("Norm"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("key: a tensor of 4 dimensions is not served"));
  key_shape_ = {3, 2, 4};
  compress_lens_ = handles_.Tensor(slots_.data(), ACL_INT64, {3});
  EXPECT_EQ(Run("Norm"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("compressLens is not served"));
  std::swap(compress_lens_, compress_seq_offset_);
  EXPECT_EQ(Run("Norm"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("compressSeqOffset is not served"));
  std::swap(compress_seq_offset_, seq_lens_);
  EXPECT_EQ(Run("Norm"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("seqLens is not served"));
}

TEST_F(ScatterPaKvCache, NamesModesAndTensors) {
  EXPECT_EQ(Run("NZ"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("cacheMode=\"NZ\", want \"Norm\" or \"PA_NZ\""));
  EXPECT_EQ(Run("PA_NZ", "NHSD"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("scatterMode=\"NHSD\""));
  cache_shape_ = {2, 2, 4, 2};
  EXPECT_EQ(Run("Norm"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("keyCacheRef.shape[2]=4, want 2 (key.shape[1])"));
  EXPECT_EQ(key_cache_, std::vector<uint16_t>(32, 7));
}

TEST_F(ScatterPaKvCache, BadPlacesAreFoundOnTheStreamAndNothingIsWritten) {
  slots_ = {0, 1, 4};
  EXPECT_EQ(Run("Norm"), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("slotMapping[2]=4, want less than 4 (keyCacheRef)"));
  EXPECT_EQ(key_cache_, std::vector<uint16_t>(32, 7));
  EXPECT_EQ(value_cache_, key_cache_);
}

TEST_F(ScatterPaKvCache, TypesThatTheLibraryDoesNotHaveMustBeEqual) {
  const std::vector<int64_t> shape = {3, 2, 4};
  aclTensor* key = handles_.Tensor(key_.data(), ACL_FLOAT8_E5M2, shape);
  dtype_ = ACL_FLOAT8_E4M3FN;
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(aclnnScatterPaCacheGetWorkspaceSize(key, Cache(key_cache_), handles_.Tensor(slots_.data(), ACL_INT64, {3}),
                                                nullptr, nullptr, nullptr, Text("Norm"), &size, &executor),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("keyCacheRef: aclDataType 36, want 35 (key)"));
}

TEST_F(ScatterPaKvCache, ScatterPaCacheWritesOneCacheOfBytes) {
  dtype_ = ACL_FLOAT8_E5M2;
  std::vector<uint8_t> key(24), cache(32, 7);
  std::iota(key.begin(), key.end(), uint8_t{1});
  ASSERT_EQ(RunPhases(
                [&](uint64_t* size, aclOpExecutor** executor) {
                  return aclnnScatterPaCacheGetWorkspaceSize(handles_.Tensor(key.data(), dtype_, key_shape_),
                                                             handles_.Tensor(cache.data(), dtype_, cache_shape_),
                                                             handles_.Tensor(slots_.data(), ACL_INT64, {3}), nullptr,
                                                             nullptr, nullptr, Text("Norm"), size, executor);
                },
                aclnnScatterPaCache),
            ACL_SUCCESS)
      << aclGetRecentErrMsg();
  EXPECT_TRUE(std::equal(key.begin(), key.begin() + 8, cache.begin() + 24));
  EXPECT_TRUE(std::equal(key.begin() + 16, key.end(), cache.begin()));
}

class GatherPaKvCache : public ::testing::Test {
 protected:
  GatherPaKvCache() { std::iota(cache_.begin(), cache_.end(), 0.0F); }

  aclError Run(const char* mode, bool cumulative) {
    aclTensor* cache = handles_.Tensor(cache_.data(), ACL_FLOAT, cache_shape_);
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnGatherPaKvCacheGetWorkspaceSize(
              cache, cache, handles_.Tensor(table_.data(), ACL_INT32, {2, 2}),
              handles_.Tensor(lengths_.data(), ACL_INT32, {static_cast<int64_t>(lengths_.size())}),
              handles_.Tensor(key_.data(), ACL_FLOAT, row_shape_),
              handles_.Tensor(value_.data(), ACL_FLOAT, row_shape_),
              offsets_.empty() ? nullptr : handles_.Tensor(offsets_.data(), ACL_INT32, {2}), Text(mode), cumulative,
              size, executor);
        },
        aclnnGatherPaKvCache);
  }

  Handles handles_;
  std::vector<float> cache_ = std::vector<float>(24), key_ = std::vector<float>(20, -7), value_ = key_;
  std::vector<int32_t> table_ = {2, 0, 1, -1}, lengths_ = {3, 1}, offsets_;
  std::vector<int64_t> cache_shape_ = {3, 2, 1, 4}, row_shape_ = {5, 1, 4};
};

TEST_F(GatherPaKvCache, ReadsSequencesInOrder) {
  const std::vector<float> want = {16, 17, 18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 8, 9, 10, 11, -7, -7, -7, -7};
  ASSERT_EQ(Run("Norm", false), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(key_, want);
  EXPECT_EQ(value_, want);
  key_.assign(20, -7);
  value_.assign(20, -7);
  lengths_ = {0, 3, 4};
  ASSERT_EQ(Run("Norm", true), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(key_, want);
  EXPECT_EQ(value_, want);
}

TEST_F(GatherPaKvCache, EmptyTensorsNeedNoAddress) {
  // The first call has no sequences. The second has no rows.
  aclTensor* cache = handles_.Tensor(cache_.data(), ACL_FLOAT, cache_shape_);
  const auto run = [&](int64_t sequences, int64_t rows) {
    const auto lengths = [&](std::vector<int32_t>& values, std::vector<int64_t> shape) {
      return handles_.Tensor(sequences > 0 ? values.data() : nullptr, ACL_INT32, shape);
    };
    const auto output = [&](std::vector<float>& values) {
      return handles_.Tensor(rows > 0 ? values.data() : nullptr, ACL_FLOAT, {rows, 1, 4});
    };
    return RunPhases(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnGatherPaKvCacheGetWorkspaceSize(
              cache, cache, lengths(table_, {sequences, 2}), lengths(lengths_, {sequences}), output(key_),
              output(value_), lengths(offsets_, {sequences}), Text("Norm"), false, size, executor);
        },
        aclnnGatherPaKvCache);
  };
  offsets_ = {0, 0};
  EXPECT_EQ(run(0, 5), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(run(2, 0), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(key_, std::vector<float>(20, -7));
  EXPECT_EQ(value_, key_);
}

TEST_F(GatherPaKvCache, ReadsChunksIntoFlatRows) {
  cache_shape_ = {3, 2, 2, 2};  // two chunks of two columns, two rows per page
  row_shape_ = {5, 4};
  ASSERT_EQ(Run("PA_NZ", false), ACL_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(std::vector<float>(key_.begin(), key_.begin() + 8), (std::vector<float>{16, 17, 20, 21, 18, 19, 22, 23}));
}

TEST_F(GatherPaKvCache, BadContentsAreFoundOnTheStreamAndNothingIsWritten) {
  offsets_ = {0, 1};
  EXPECT_EQ(Run("Norm", false), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("seqOffset[1]=1, want a multiple of 2"));
  offsets_.clear();
  lengths_ = {0, 3, 2};
  EXPECT_EQ(Run("Norm", true), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("seqLens[2]=2, want >= 3"));
  EXPECT_EQ(Run("Alibi", true), ACLNN_ERR_PARAM_INVALID);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("cacheMode=\"Alibi\""));
  EXPECT_EQ(key_, std::vector<float>(20, -7));
}

}  // namespace
}  // namespace fa::test
