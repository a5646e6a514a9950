#include "ops/limits/dense_sizes.h"

#include "ops/limits/claimed_tensors.h"

namespace fa::test {
namespace {}  // namespace

std::string Text(const DenseSizes& s) {
  std::string text;
  for (const int64_t size : {s.b, s.n, s.n_kv, s.sq, s.sk, s.d, s.dv}) text += " " + std::to_string(size);
  return text;
}

AttentionArgs ForwardArgs(const DenseSizes& s, DType dtype) {
  AttentionArgs args;
  args.q = Claim({s.b, s.n, s.sq, s.d}, dtype);
  args.k = Claim({s.b, s.n_kv, s.sk, s.d}, dtype);
  args.v = Claim({s.b, s.n_kv, s.sk, s.dv}, dtype);
  args.out = ClaimOutput({s.b, s.n, s.sq, s.dv}, dtype);
  return args;
}

AttentionGradArgs BackwardArgs(const DenseSizes& s, DType dtype) {
  AttentionGradArgs args;
  args.q = Claim({s.b, s.n, s.sq, s.d}, dtype);
  args.k = Claim({s.b, s.n_kv, s.sk, s.d}, dtype);
  args.v = Claim({s.b, s.n_kv, s.sk, s.dv}, dtype);
  args.out = args.d_out = Claim({s.b, s.n, s.sq, s.dv}, dtype);
  args.softmax_max = args.softmax_sum = Claim({s.b, s.n, s.sq});
  args.dq = ClaimOutput(args.q.shape, dtype);
  args.dk = ClaimOutput(args.k.shape, dtype);
  args.dv = ClaimOutput(args.v.shape, dtype);
  return args;
}

std::vector<DenseSizes> AbsurdDenseSizes() {
  std::vector<DenseSizes> cases;
  for (const int64_t size : AbsurdSizes()) {
    for (const int64_t rows : {0, 1, 16}) {
      cases.push_back({.b = size, .sq = rows});
      cases.push_back({.b = size, .sq = rows, .sk = 0});
    }
    cases.push_back({.n = size, .sq = 64});  // with 64 rows, heads do not become rows of one tile
    cases.push_back({.n = size, .n_kv = size});
    cases.push_back({.n = size, .sq = 0});
    cases.push_back({.d = size});
    cases.push_back({.dv = size});
    cases.push_back({.b = size, .n = size, .sq = size, .sk = size});
  }
  for (const int64_t size : AbsurdSizes(Power(40))) {
    cases.push_back({.n = size, .sq = 1});  // with one row, heads become rows of one tile
    cases.push_back({.sq = size});
    cases.push_back({.sq = size, .d = 1, .dv = 1});
    cases.push_back({.sk = size});
    cases.push_back({.sq = 1, .sk = size, .d = 1, .dv = 1});
    cases.push_back({.sq = 4096, .sk = size});
    cases.push_back({.n = Power(12), .n_kv = Power(12), .sq = 0, .sk = size});
    cases.push_back({.n = Power(20), .n_kv = 1, .sq = 0, .sk = size});
  }
  return cases;
}

}  // namespace fa::test
