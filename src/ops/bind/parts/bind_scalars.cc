#include <cmath>
#include <string>

#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

// The bound of |q_start| and |kv_start|, far beyond any position. Within it, no distance between positions overflows.
constexpr int64_t kMaxStart = int64_t{1} << 60;

Status CheckStart(const char* name, int64_t start) {
  if (start >= -kMaxStart && start <= kMaxStart) return Status::Ok();
  return Status::InvalidArgument(Arg(name).Is(std::to_string(start)) + ", want -2^60..2^60");
}

}  // namespace

Status BindScalars(Binding& call) {
  const AttentionOptions& options = call.options;
  BoundAttention& bound = call.bound;
  if (options.layout > Layout::kBNSD_BSND && !call.fused()) {
    return Status::InvalidArgument(Arg("layout").Is(std::to_string(static_cast<int>(options.layout))) +
                                   ", want BNSD, BSND, BSH, SBH, TND or BNSD_BSND");
  }
  if (options.pse_type > PseType::kSlopesSqrt) {
    return Status::InvalidArgument(Arg("pse_type").Is(std::to_string(static_cast<int>(options.pse_type))) +
                                   ", want 0..3");
  }
  if (options.heads < 0) {
    return Status::InvalidArgument(Arg("heads").Is(std::to_string(options.heads)) + ", want >= 1");
  }
  if (options.scale && !std::isfinite(*options.scale)) {
    return Status::InvalidArgument(Arg("scale").Is(Text(*options.scale)) + ", want a finite number");
  }
  if (!(options.softcap >= 0) || std::isinf(options.softcap)) {
    return Status::InvalidArgument(Arg("softcap").Is(Text(options.softcap)) + ", want a finite number >= 0");
  }
  if (options.softcap > 0 && options.pse_type == PseType::kAddThenScale && call.args.pse.data != nullptr) {
    return Status::InvalidArgument(Arg("softcap").Is(Text(options.softcap)) + ", want 0 (" + Arg("pse_type") +
                                   " 1 adds " + Arg("pse") + " before the scale, the cap is after it)");
  }
  FA_RETURN_IF_ERROR(CheckStart("q_start", options.q_start));
  FA_RETURN_IF_ERROR(CheckStart("kv_start", options.kv_start));
  CopyNumbers(options, static_cast<ScoreNumbers&>(bound));
  bound.pse_type = options.pse_type;
  return Status::Ok();
}

}  // namespace fa::ops
