#include "fa_mpi/rank_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "files/staged_file.h"
#include "flags/failure.h"
#include "npy/npy_file.h"

namespace fa::tool {
namespace {

std::vector<npy::RowRange> RangesOf(const std::vector<SequenceShards::Interval>& intervals) {
  std::vector<npy::RowRange> ranges;
  for (const SequenceShards::Interval& interval : intervals) ranges.push_back({interval.begin, interval.end});
  return ranges;
}

}  // namespace

OwnRows::OwnRows(const RankSchedule::Rank& rank) : queries(RangesOf(rank.q_rows)), keys(RangesOf(rank.k_rows)) {}

void OwnRows::SetPairs(int64_t heads, std::span<const int64_t> cu_q, std::span<const int64_t> cu_kv) {
  pairs.clear();
  int64_t at = 0;
  npy::RowRange rows, keys;
  for (size_t b = 0; b < cu_q.size(); ++b) {
    rows = {rows.end, cu_q[b]};
    keys = {keys.end, cu_kv[b]};
    const int64_t sk = keys.end - keys.begin;
    for (int64_t head = 0; head < heads; ++head) {
      for (const npy::RowRange& own : queries) {
        const int64_t begin = std::max(own.begin, rows.begin), end = std::min(own.end, rows.end);
        if (begin < end) pairs.push_back({at + (begin - rows.begin) * sk, at + (end - rows.begin) * sk});
      }
      at += (rows.end - rows.begin) * sk;
    }
  }
}

std::vector<int64_t> OwnRows::Part(std::vector<int64_t> shape, const RowAxis& axis) const {
  if (axis.axis < 0) return shape;
  int64_t& rows = shape[static_cast<size_t>(axis.axis)];
  rows = 0;
  for (const npy::RowRange& range : Of(axis)) rows += range.end - range.begin;
  return shape;
}

void ReadOwnRows(const std::vector<RankInput>& inputs, const OwnRows& rows, InputFiles& files) {
  for (const auto& [flag, view, axis] : inputs) {
    if (view->data == nullptr) continue;
    *view = axis.axis < 0 ? files.ReadAll(flag) : files.ReadRows(flag, axis.axis, rows.Of(axis));
  }
}

RankOutputs::RankOutputs(std::vector<OutputSpec> outputs, const RankSession& session)
    : session_(session), outputs_(std::move(outputs)) {
  static char present;  // planning only asks whether an output is given, so any address will do
  for (const OutputSpec& output : outputs_) {
    *output.view = {&present, output.dtype, Dims(std::span(output.shape)), {}};
    if (!session_.is_first()) continue;
    const size_t file = files_.Add(output.flag, output.path);
    if (files_.in_place(file)) {
      throw UsageError(
          fmt::format("{}: {}: not a regular file, and ranks write it together", output.flag, output.path));
    }
  }
}

void RankOutputs::SetRows(const MutableTensorView& output, RowAxis rows) {
  for (OutputSpec& of : outputs_) {
    if (of.view == &output) of.rows = rows;
  }
}

void RankOutputs::Allocate(const OwnRows& rows) {
  for (const OutputSpec& output : outputs_) {
    Tensor& tensor = tensors_.emplace_back(NewTensor(output.dtype, rows.Part(output.shape, output.rows)));
    *output.view = tensor.MutableView();
  }
}

void RankOutputs::Commit(const OwnRows& rows) {
  std::deque<StagedFile> staged;  // stays empty on ranks other than 0
  const auto named = [](const OutputSpec& output, const auto& work) {
    try {
      work();
    } catch (const npy::IoError& error) {
      throw Failure(fmt::format("{}: {}: {}", output.flag, output.path, error.what()));
    }
  };
  session_.Together([&] {
    if (!session_.is_first()) return;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      named(outputs_[i], [&] {
        StagedFile& file = staged.emplace_back(files_.target(i), StagedFile::Naming::kAlways);
        npy::WriteHeaderAndLength(file.stream(), ElementTypeOf(outputs_[i].dtype), outputs_[i].shape);
        file.Finish();
      });
    }
  });
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    names.push_back(session_.OfFirst(session_.is_first() ? staged[i].name() : std::string()));
  }
  session_.Together([&] {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const OutputSpec& output = outputs_[i];
      const bool cut = output.rows.axis >= 0;
      if (output.shape.empty() || (!cut && !session_.is_first())) continue;
      const npy::RowRange all{0, output.shape[0]};
      const npy::RowsOfArray where = {.shape = output.shape,
                                      .axis = cut ? static_cast<size_t>(output.rows.axis) : 0,
                                      .rows = cut ? std::span(rows.Of(output.rows)) : std::span(&all, 1)};
      named(output, [&] { npy::WriteRows(names[i], tensors_[i].array, where); });
    }
  });
  session_.Together([&] {
    const PublishedTogether together;
    for (size_t i = 0; i < staged.size(); ++i) {
      named(outputs_[i], [&] { staged[i].Publish(); });
    }
  });
}

}  // namespace fa::tool
