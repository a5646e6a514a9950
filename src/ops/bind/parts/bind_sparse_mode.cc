// Refuses arguments of sparse modes 0..8 that the device refuses, although the library could compute them. The device's
// limits on sizes are not checked.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"

namespace fa::ops {
namespace {

// Returns -x, or the greatest integer if x is the lowest one.
int64_t Negated(int64_t x) {
  return x == std::numeric_limits<int64_t>::min() ? std::numeric_limits<int64_t>::max() : -x;
}

ErrorText InMode(const Binding& call) {
  return Arg("sparse_mode") + " " + std::to_string(call.options.mask.sparse_mode());
}

// Returns the sizes of a sequence for an error. `index` is the number of a packed sequence, or -1 if all batch elements
// have the same sizes.
ErrorText Sizes(const Binding& call, const tiling::Sequence& sequence, int64_t index) {
  return " (" + InMode(call) + (index >= 0 ? ", sequence " + std::to_string(index) : std::string()) +
         ", Sq=" + std::to_string(sequence.sq) + ", Sk=" + std::to_string(sequence.sk) + ")";
}

Status Refused(ErrorText argument, int64_t got, const Words& want) {
  return Status::InvalidArgument(std::move(argument).Is(std::to_string(got)) + ", want " + want.text);
}

Status CheckModeAndLayout(const Binding& call) {
  const int64_t mode = call.options.mask.sparse_mode();
  if (call.inference != nullptr && mode > 4) return Refused(Arg("sparse_mode"), mode, "0..4");
  if (!call.packed() && mode > 6) {
    return Refused(Arg("sparse_mode"), mode, "0..6 (" + Arg("layout") + " " + Name(call.options.layout) + ")");
  }
  if (call.packed() && mode == 5) return Refused(Arg("sparse_mode"), mode, "0..4 or 6..8 (" + Arg("layout") + " TND)");
  const bool slopes = call.options.pse_type >= PseType::kSlopes && call.args.pse.data != nullptr;
  if (mode == 7 && slopes) {
    return Refused(Arg("pse_type"), static_cast<int>(call.options.pse_type), "0 or 1 (" + InMode(call) + ")");
  }
  return Status::Ok();
}

Status CheckMaskPresence(const Binding& call) {
  const Mask& mask = call.options.mask;
  const bool given = call.args.dense_mask.data != nullptr;
  if (mask.sparse_mode() == 0 && given != (mask.kind() == Mask::Kind::kBandTopLeft)) {
    return Status::InvalidArgument(Arg("dense_mask").Says(given ? "given, but " : "missing, but ") + InMode(call) +
                                   (given ? " was made without dense_mask_given" : " was made with dense_mask_given"));
  }
  const TensorView& dense = call.args.dense_mask;
  if (mask.sparse_mode() == 5 && given && call.sizes.sequences > 1 &&
      (dense.shape.rank() != 4 || dense.shape[0] != call.sizes.sequences)) {
    return Status::InvalidArgument(Arg("dense_mask", ".shape").Is(Text(dense.shape)) +
                                   ", want [B,1,Sq,Sk] or [B,N,Sq,Sk] (" + Arg("sparse_mode") + " 5)");
  }
  return Status::Ok();
}

// Refuses bands of modes 0 and 4 that keep no pair whatever the sizes are. A negative pre needs next >= -pre, and a
// negative next needs pre >= -next.
Status CheckBandSigns(const Binding& call) {
  const int64_t pre = call.options.mask.pre();
  const int64_t next = call.options.mask.next();
  if (pre < 0 && next < Negated(pre)) {
    return Refused(Arg("mask.pre"), pre,
                   ">= " + std::to_string(Negated(next)) + " (minus " + Arg("mask.next") + ", " + InMode(call) + ")");
  }
  if (next < 0 && pre < Negated(next)) {
    return Refused(Arg("mask.next"), next,
                   ">= " + std::to_string(Negated(pre)) + " (minus " + Arg("mask.pre") + ", " + InMode(call) + ")");
  }
  return Status::Ok();
}

Status CheckBandOfSequence(const Binding& call, const tiling::Sequence& sequence, int64_t index) {
  const Mask& mask = call.options.mask;
  const bool top_left = mask.sparse_mode() == 0;
  const int64_t pre = mask.pre();
  const int64_t next = mask.next();
  const auto refused = [&](const char* argument, int64_t got, int64_t bound) {
    return Refused(Arg(argument), got, ">= " + std::to_string(bound) + Sizes(call, sequence, index));
  };
  if (!call.packed()) {
    // If pre is negative, the first row must still keep a key. If next is negative, some row must still keep the first
    // key.
    const int64_t min_pre = 1 - (top_left ? sequence.sk : sequence.sq);
    const int64_t min_next = 1 - (top_left ? sequence.sq : sequence.sk);
    if (pre < 0 && pre < min_pre) return refused("mask.pre", pre, min_pre);
    if (next < 0 && next < min_next) return refused("mask.next", next, min_next);
    return Status::Ok();
  }
  if (top_left) {
    if (next < 0) return refused("mask.next", next, 0);
    if (pre < sequence.sq - sequence.sk) return refused("mask.pre", pre, sequence.sq - sequence.sk);
  } else {
    if (pre < 0) return refused("mask.pre", pre, 0);
    if (next < sequence.sq - sequence.sk) return refused("mask.next", next, sequence.sq - sequence.sk);
  }
  return Status::Ok();
}

Status CheckPrefixOfSequence(const Binding& call, const tiling::Sequence& sequence, int64_t b) {
  const int64_t prefix = call.options.mask.prefix()[static_cast<size_t>(b)];
  const int64_t lowest = std::max<int64_t>(sequence.sk - sequence.sq, 0);
  if (prefix >= lowest && prefix <= sequence.sk) return Status::Ok();
  return Refused(
      Arg("mask.prefix", {}, At(b)), prefix,
      std::to_string(lowest) + ".." + std::to_string(sequence.sk) + Sizes(call, sequence, call.packed() ? b : -1));
}

Status CheckNoFewerKeys(const Binding& call, const tiling::Sequence& sequence, int64_t b) {
  if (sequence.sq <= sequence.sk) return Status::Ok();
  return Status::InvalidArgument(
      Arg(call.paged() ? "lengths_kv" : "cu_kv", {}, At(b)).Says("want at least as many keys as queries") +
      Sizes(call, sequence, b));
}

// Checks modes 7 and 8. `banded` says whether the band applies to this sequence. The band applies to the last sequence
// with rows in mode 7, and to the first in mode 8.
Status CheckChunkBand(const Binding& call, const tiling::Sequence& sequence, int64_t b, bool banded) {
  const Mask& mask = call.options.mask;
  const bool last_mode = mask.sparse_mode() == 7;
  if (!banded) return last_mode ? CheckNoFewerKeys(call, sequence, b) : Status::Ok();
  if (mask.pre() < sequence.sk) {
    return Refused(Arg("mask.pre"), mask.pre(), ">= " + std::to_string(sequence.sk) + Sizes(call, sequence, b));
  }
  const int64_t lowest = sequence.sq - sequence.sk;
  if (mask.next() < lowest || (last_mode && mask.next() > 0)) {
    return Refused(
        Arg("mask.next"), mask.next(),
        (last_mode ? std::to_string(lowest) + "..0" : ">= " + std::to_string(lowest)) + Sizes(call, sequence, b));
  }
  return Status::Ok();
}

Status CheckSequence(const Binding& call, const tiling::Sequence& sequence, int64_t b, bool first, bool last) {
  const Mask& mask = call.options.mask;
  switch (mask.sparse_mode()) {
    case 0:
      if (mask.kind() != Mask::Kind::kBandTopLeft) return Status::Ok();
      [[fallthrough]];
    case 4: return CheckBandOfSequence(call, sequence, call.packed() ? b : -1);
    case 3: return call.packed() ? CheckNoFewerKeys(call, sequence, b) : Status::Ok();
    case 5:
    case 6: return CheckPrefixOfSequence(call, sequence, b);
    case 7: return CheckChunkBand(call, sequence, b, last);
    case 8: return CheckChunkBand(call, sequence, b, first);
    default: return Status::Ok();
  }
}

}  // namespace

Status CheckSparseMode(const Binding& call) {
  FA_RETURN_IF_ERROR(CheckModeAndLayout(call));
  FA_RETURN_IF_ERROR(CheckMaskPresence(call));
  const Mask& mask = call.options.mask;
  if (mask.kind() == Mask::Kind::kBandTopLeft || mask.kind() == Mask::Kind::kBand) {
    FA_RETURN_IF_ERROR(CheckBandSigns(call));
  }
  if (call.inference != nullptr && !call.packed()) {
    // With the sizes of the whole tensors the band must keep some pair. In a batch element that uses fewer rows, it may
    // keep none.
    tiling::Sequence tensors;
    tensors.sq = call.sizes.q_rows;
    tensors.sk = call.sizes.k_rows;
    return tensors.sq == 0 ? Status::Ok() : CheckSequence(call, tensors, 0, true, true);
  }
  const std::vector<tiling::Sequence>& sequences = call.bound.problem.sequences;
  const auto count = static_cast<int64_t>(sequences.size());
  int64_t first = 0;
  int64_t last = count - 1;
  while (first < count && sequences[static_cast<size_t>(first)].sq == 0) ++first;
  while (last >= 0 && sequences[static_cast<size_t>(last)].sq == 0) --last;
  // A sequence without rows cannot leave a row without keys, so nothing is refused.
  for (int64_t b = first; b <= last; ++b) {
    const tiling::Sequence& sequence = sequences[static_cast<size_t>(b)];
    if (sequence.sq == 0) continue;
    FA_RETURN_IF_ERROR(CheckSequence(call, sequence, b, b == first, b == last));
  }
  return Status::Ok();
}

}  // namespace fa::ops
