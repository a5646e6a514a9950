// Draws the values of a ForwardCase.
#include <limits>
#include <numeric>

#include "support/cases/forward_case.h"
#include "support/cases/random_values.h"

namespace fa::test {
namespace {

/// Returns values in the order [sequence][head][row][column], rounded to the type of q.
std::vector<double> HeadValues(const ForwardCase& c, Tag tag, int64_t heads, const std::vector<int64_t>& rows,
                               int64_t size) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(std::accumulate(rows.begin(), rows.end(), int64_t{0}) * heads * size));
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t s = 0; s < rows[b]; ++s) {
        const RandomLine line(c.seed, tag, {c.first_sequence + b, n, s});
        for (int64_t x = 0; x < size; ++x) values.push_back(RoundTo(c.dtype, line.Normal(x)));
      }
    }
  }
  return values;
}

/// The shape of a matrix with an entry per (query, key) pair of a sequence, such as a mask or bias. It also says
/// whether all batch elements or all heads share the matrix. A bias may have one row for all queries, or be compressed.
struct PairShape {
  bool broadcast_batch = false, broadcast_head = false;
  int64_t rows = 0, columns = 0;
};

/// @param draw_row  called as draw_row(head, row); returns a function that draws the value at key j
template <typename T, typename DrawRow>
void AddSequence(const ForwardCase& c, int64_t b, const PairShape& shape, const DrawRow& draw_row,
                 reference::PairValues<T>* pairs) {
  const bool shared = shape.broadcast_batch && b > 0;
  pairs->offset.push_back(shared ? pairs->offset.front() : static_cast<int64_t>(pairs->values.size()));
  pairs->head.push_back(shape.broadcast_head ? 0 : shape.rows * shape.columns);
  pairs->row.push_back(shape.rows == 1 ? 0 : shape.columns);
  if (shared) return;
  for (int64_t n = 0; n < (shape.broadcast_head ? 1 : c.heads); ++n) {
    for (int64_t i = 0; i < shape.rows; ++i) {
      const auto draw_pair = draw_row(n, i);
      for (int64_t j = 0; j < shape.columns; ++j) pairs->values.push_back(draw_pair(j));
    }
  }
}

void AddDenseMask(const ForwardCase& c, reference::Problem* p) {
  for (int64_t b = 0; b < c.batch(); ++b) {
    const bool plane = c.packed() || c.dense_mask == MaskForm::kPlane || c.dense_mask == MaskForm::kPlane4d;
    const PairShape shape{.broadcast_batch = plane,
                          .broadcast_head = c.dense_mask != MaskForm::kPerHead || c.packed(),
                          .rows = c.max_sq(),
                          .columns = c.max_sk()};
    const int64_t place = plane ? 0 : c.first_sequence + b;
    AddSequence(
        c, b, shape,
        [&](int64_t n, int64_t i) {
          return [&c, line = RandomLine(c.seed, Tag::kDenseMask, {place, n, i})](int64_t j) -> uint8_t {
            return line.Uniform(j) < c.dense_mask_share ? 1 : 0;
          };
        },
        &p->dense_mask);
  }
}

void AddPse(const ForwardCase& c, reference::Problem* p) {
  p->pse_compressed = c.pse == PseForm::kCompressed;
  const DType dtype = c.pse_f32 ? DType::kF32 : c.dtype;
  for (int64_t b = 0; b < c.batch(); ++b) {
    PairShape shape{.broadcast_batch = c.pse_broadcast_batch, .rows = c.lengths.sq[b], .columns = c.lengths.sk[b]};
    if (c.pse == PseForm::kRow) shape.rows = 1;
    if (p->pse_compressed) shape.rows = 1024;
    if (p->pse_compressed && c.packed()) shape.columns = c.max_sk();
    const int64_t place = c.pse_broadcast_batch ? 0 : c.first_sequence + b;
    AddSequence(
        c, b, shape,
        [&](int64_t n, int64_t i) {
          return [&c, dtype, choice = RandomLine(c.seed, Tag::kChoice, {place, n, i}),
                  line = RandomLine(c.seed, Tag::kPse, {place, n, i})](int64_t j) {
            if (c.pse_minus_inf_share > 0 && choice.Uniform(j) < c.pse_minus_inf_share) {
              return -std::numeric_limits<double>::infinity();
            }
            return RoundTo(dtype, line.Normal(j));
          };
        },
        &p->pse);
  }
}

void AddSlopes(const ForwardCase& c, reference::Problem* p) {
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t n = 0; n < c.heads; ++n) {
      const int64_t place = c.pse_broadcast_batch ? 0 : c.first_sequence + b;
      p->slopes.push_back(RoundTo(DType::kF32, RandomUniform(c.seed, Tag::kSlopes, {place, n})));
    }
  }
}

/// Adds the bits in the flat order [sequence][head][row][key]. A sequence has the same bits in any batch.
void AddDropMask(const ForwardCase& c, reference::Problem* p) {
  int64_t flat = 0;
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t n = 0; n < c.heads; ++n) {
      for (int64_t i = 0; i < c.lengths.sq[b]; ++i) {
        const RandomLine line(c.seed, Tag::kDropMask, {c.first_sequence + b, n, i});
        for (int64_t j = 0; j < c.lengths.sk[b]; ++j, ++flat) {
          if (flat % 8 == 0) p->drop_bits.push_back(0);
          if (line.Uniform(j) < static_cast<double>(c.keep_prob)) {
            p->drop_bits.back() = static_cast<uint8_t>(p->drop_bits.back() | 1U << (flat % 8));
          }
        }
      }
    }
  }
  p->drop_bits.push_back(0);  // an empty mask would count as no mask
}

}  // namespace

reference::Problem MakeReferenceProblem(const ForwardCase& c) {
  reference::Problem p{.heads = c.heads, .heads_kv = c.heads_kv, .d = c.d, .d_rope = c.d_rope, .dv = c.dv};
  p.lengths = c.lengths;
  p.q = HeadValues(c, Tag::kQ, c.heads, c.lengths.sq, c.d);
  p.k = HeadValues(c, Tag::kK, c.heads_kv, c.lengths.sk, c.d);
  p.v = HeadValues(c, Tag::kV, c.heads_kv, c.lengths.sk, c.dv);
  p.q_rope = HeadValues(c, Tag::kQRope, c.heads, c.lengths.sq, c.d_rope);
  p.k_rope = HeadValues(c, Tag::kKRope, c.heads_kv, c.lengths.sk, c.d_rope);
  p.scale = static_cast<double>(c.scale_value());
  CopyNumbers(c, p);
  p.mask = c.mask;
  if (c.dense_mask != MaskForm::kNone) AddDenseMask(c, &p);
  p.pse_type = c.pse_type;
  if (c.pse == PseForm::kSlopes) {
    AddSlopes(c, &p);
  } else if (c.pse != PseForm::kNone) {
    AddPse(c, &p);
  }
  if (c.dropout == DropoutForm::kMask) AddDropMask(c, &p);
  if (c.dropout == DropoutForm::kSeed) {
    const PhiloxState state = *OptionsOf(c).dropout;
    p.seed = reference::Seed{.seed = state.seed, .offset = state.offset};
  }
  if (c.sink) {
    p.sink_form = c.sink_form;
    const auto draw = [&](std::initializer_list<int64_t> at) {
      p.sink.push_back(RoundTo(DType::kF32, RandomNormal(c.seed, Tag::kSink, at)));
    };
    for (int64_t b = 0; b < (c.sink_form == reference::SinkForm::kPerRow ? c.batch() : 1); ++b) {
      for (int64_t n = 0; n < c.heads; ++n) {
        if (c.sink_form == reference::SinkForm::kPerHead) {
          draw({n});
          continue;
        }
        const bool of_all = c.sink_form == reference::SinkForm::kPerRowOfAll;
        for (int64_t i = 0; i < (of_all ? c.max_sq() : c.lengths.sq[b]); ++i) {
          draw({n, i, of_all ? -1 : c.first_sequence + b});
        }
      }
    }
  }
  return p;
}

namespace {

/// Calls visit(element of the tensor of sinks, index in the reference) for each sink.
template <typename Visit>
void ForEachSink(const ForwardCase& c, const reference::Problem& values, const Dims& stride, const Visit& visit) {
  const auto of_all = c.sink_form != reference::SinkForm::kPerRow;
  for (int64_t b = 0; b < (of_all ? 1 : c.batch()); ++b) {
    for (int64_t n = 0; n < c.heads; ++n) {
      if (c.sink_form == reference::SinkForm::kPerHead) {
        visit(n * stride[0], n);
        continue;
      }
      for (int64_t i = 0; i < (of_all ? c.max_sq() : c.lengths.sq[b]); ++i) {
        const int64_t row = c.packed() ? values.RowsBefore(c.lengths.sq, b) + i : i;
        visit(c.packed() ? row * stride[0] + n * stride[1] : b * stride[0] + n * stride[1] + i * stride[2],
              values.SinkIndex(b, n, i));
      }
    }
  }
}

}  // namespace

Tensor SinkTensor(const ForwardCase& c, const reference::Problem& values, int64_t spare) {
  if (!c.sink) return {};
  Dims shape{c.heads};
  if (c.sink_form != reference::SinkForm::kPerHead) {
    const int64_t rows = (c.packed() ? c.tensor_rows_q() : c.max_sq()) + spare;
    const int64_t batch = c.sink_form == reference::SinkForm::kPerRow ? c.batch() : 1;
    shape = c.packed() ? Dims{rows, c.heads} : Dims{batch, c.heads, rows};
  }
  Dims stride = DenseStride(shape);
  for (int dim = 0; shape.rank() > 1 && dim < shape.rank(); ++dim) stride[dim] *= 2;
  Tensor sinks(DType::kF32, shape, stride, c.placement);
  ForEachSink(c, values, stride, [&](int64_t at, int64_t index) { sinks.Set(at, values.sink[index]); });
  return sinks;
}

std::vector<double> SinksOf(const ForwardCase& c, const reference::Problem& values, const Tensor& sinks) {
  if (sinks.absent()) return {};
  std::vector<double> all(values.sink.size());
  ForEachSink(c, values, sinks.stride(), [&](int64_t at, int64_t index) { all[index] = sinks.Get(at); });
  return all;
}

}  // namespace fa::test
