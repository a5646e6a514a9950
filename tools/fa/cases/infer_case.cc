#include "cases/infer_case.h"

#include "flags/failure.h"

namespace fa::tool {

InferAttentionArgs InferArgsOf(const DecodeAttentionArgs& decode) {
  InferAttentionArgs args;
  static_cast<DecodeAttentionArgs&>(args) = decode;
  return args;
}

InferAttentionOptions InferOptionsOf(const DecodeCase& decode) {
  InferAttentionOptions options;
  options.layout = decode.options.layout;
  options.heads = decode.options.heads;
  options.antiquant = decode.options.antiquant;
  const Mask& mask = decode.options.mask;
  switch (mask.kind()) {
    case Mask::Kind::kNone: break;
    case Mask::Kind::kCausalTopLeft: options.sparse_mode = 2; break;
    case Mask::Kind::kCausal: options.sparse_mode = 3; break;
    case Mask::Kind::kBand: options.sparse_mode = 4; break;
    case Mask::Kind::kBandTopLeft: break;
    default: throw UsageError("--sparse-mode: want 0 to 4 for infer");
  }
  options.pre = mask.pre();
  options.next = mask.next();
  return options;
}

void TakeRuleOfSingleRows(DecodeCase& decode) {
  const Mask::Kind kind = decode.options.mask.kind();
  if (decode.forward.sq != 1 || (kind != Mask::Kind::kCausalTopLeft && kind != Mask::Kind::kBandTopLeft)) return;
  decode.options.mask = decode.forward.options.mask = Mask::None();
}

}  // namespace fa::tool
