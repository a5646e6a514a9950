// If an operator's argument is wrong, the argument() of the status names it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fa/error_text.h"
#include "fuzz/calls/families.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr uint64_t kCases = 12;  // the number of cases of each family
// More cases are made until every argument was given, but no more than this.
constexpr uint64_t kMostCases = 400;

/// Returns the arguments that an operator has, but that no call of the family gives. For example, no int8 query takes
/// "sink".
std::set<std::string> NeverGiven(std::string_view family) {
  if (family == "Prompt" || family == "Decode") return {"deq_scale1", "quant_scale1", "deq_scale2"};
  // ops/inference/infer/mutual_test.cc and scaled_test.cc make the calls of this operator with scales.
  if (family == "Infer")
    return {"k_scale",    "v_scale",      "k_offset",   "v_offset",     "antiquant_scale", "antiquant_offset",
            "deq_scale1", "quant_scale1", "deq_scale2", "quant_scale2", "quant_offset2",   "q_scale"};
  // ops/indexer/quantized_indexer_test.cc makes the calls of this operator with these arguments.
  if (family == "Indexer") return {"used_q", "used_kv"};
  // ops/indexer/given_target_test.cc makes the calls of this operator with these arguments.
  if (family == "IndexerLoss") return {"softmax_index", "used_q", "used_kv", "residual_kv"};
  if (family == "PromptInt8") return {"q_rope", "k_rope", "sink", "softmax_max", "softmax_sum", "lse"};
  if (family == "DecodeInt8")
    return {"k_scale",     "v_scale", "k_offset", "v_offset", "antiquant_scale", "antiquant_offset",
            "block_table", "cu_q",    "sink",     "lse",      "q_rope",          "k_rope"};
  return {};
}

/// Returns the argument to which the field belongs: the list "k" for the field "k[1]".
std::string ArgumentOf(const std::string& field) { return field.substr(0, field.find('[')); }

/// Names of arguments: those that a status should name, those that the cases had, and those whose mistakes were
/// refused.
struct Names {
  std::set<std::string> wanted, given, refused;

  /// Returns whether another case is to be made.
  [[nodiscard]] bool WantMore(uint64_t seed) const {
    return seed <= kCases ||
           (seed <= kMostCases && !std::includes(given.begin(), given.end(), wanted.begin(), wanted.end()));
  }

  void Add(FuzzCall* call, const std::string& field) {
    given.insert(field);
    const Status status = call->Run(ContextOf(Isa::kPortable, 1), {});
    call->Restore();
    if (status.ok()) return;  // another argument keeps the operator from reading this one
    refused.insert(field);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_EQ(status.argument(), field) << status.message() << "\n " << call->Describe();
    EXPECT_EQ(status.message().rfind("invalid argument: " + field, 0), 0U) << status.message();
  }
};

class ArgumentNames : public EveryOperator {};

TEST_P(ArgumentNames, OfATensorOfNoType) {
  Names names;
  const std::set<std::string> never = NeverGiven(GetParam().name);
  for (uint64_t seed = 1; names.WantMore(seed); ++seed) {
    const std::unique_ptr<FuzzCall> call = GetParam().make(seed);
    for (const TensorField& field : call->Tensors()) {
      if (!never.contains(field.name())) names.wanted.insert(ArgumentOf(field.name()));
      if (field.absent()) continue;
      const TensorView was = field.view();
      field.Set({const_cast<void*>(was.data), static_cast<DType>(77), was.shape, was.stride});
      names.Add(call.get(), ArgumentOf(field.name()));
    }
  }
  EXPECT_FALSE(names.refused.empty());
  EXPECT_EQ(names.given, names.wanted);
  EXPECT_EQ(names.refused, names.given);
}

TEST_P(ArgumentNames, OfLengthsThatAreNone) {
  Names names;
  for (uint64_t seed = 1; names.WantMore(seed); ++seed) {
    const std::unique_ptr<FuzzCall> call = GetParam().make(seed);
    for (const LengthsField& field : call->Lengths()) {
      if (NeverGiven(GetParam().name).contains(field.name)) continue;
      names.wanted.insert(field.name);
      if (field.values->empty()) continue;
      std::vector<int64_t> values(field.values->begin(), field.values->end());
      values.front() = -1;
      *field.values = values;
      names.Add(call.get(), field.name);
    }
  }
  EXPECT_EQ(names.given, names.wanted);
  EXPECT_EQ(names.refused, names.given);
}

// The last family is left out. It makes dropout masks, which are bits and have no DType.
INSTANTIATE_TEST_SUITE_P(All, ArgumentNames, ::testing::ValuesIn(kFamilies, kFamilies + std::size(kFamilies) - 1),
                         FamilyName);

TEST(ErrorText, TellsOfArgumentsInOtherWords) {
  const ErrorText error = ErrorText::Argument("k", ".shape", "[2]").Is("5") + ", want 7 (" +
                          ErrorText::Argument("q", ".shape", "[1]") + ")";
  const Status status = Status::InvalidArgument(error);
  EXPECT_EQ(status.message(), "invalid argument: k.shape[2]=5, want 7 (q.shape[1])");
  EXPECT_EQ(status.class_text(), "invalid argument: ");
  EXPECT_EQ(status.argument(), "k");
  const auto say = [](auto name, auto member, auto index) {
    return "<" + std::string(name) + "|" + std::string(member) + "|" + std::string(index) + ">";
  };
  EXPECT_EQ(status.what().Retold(say), "<k|.shape|[2]>=5, want 7 (<q|.shape|[1]>)");
  EXPECT_EQ(status.what().Retold(say, error.said_at()), "5, want 7 (<q|.shape|[1]>)");
}

TEST(ErrorText, OfWordsNamesNoArgument) {
  const Status status = Status::InvalidArgument("k is a word here");
  EXPECT_EQ(status.argument(), "");
  EXPECT_EQ(Status::Ok().argument(), "");
  EXPECT_EQ(Status::Ok().class_text(), "");
}

}  // namespace
}  // namespace fa::test
