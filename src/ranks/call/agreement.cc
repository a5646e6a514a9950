#include "ranks/call/agreement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

#include "fa/error_text.h"

namespace fa::ops {
namespace {

// The bytes of a text that ranks exchange. A longer error or description is cut. The hash of a whole description still
// shows a difference in the part that is cut.
constexpr size_t kTextBytes = 4096;
using FixedText = std::array<char, kTextBytes>;  // the text ends with a 0 byte

struct Record {
  int32_t code = 0;
  int32_t isa = 0;
  int32_t workers = 0;
  uint32_t pse_forms = kAnyForm;
  uint64_t hash = 0;
  int64_t memory_bytes = 0;
};

// Up to this number of ranks, the ranks agree without allocating memory.
constexpr size_t kRanksWithoutMemory = 2048;

/// Gathers the records and texts of all ranks. A rank without free memory must still tell the others, or they would
/// wait for it forever. So this object, which lies on the stack, has room for the records of kRanksWithoutMemory ranks.
/// Texts arrive in pieces that fit into the same room.
class Gathering {
 public:
  explicit Gathering(Transport& transport) : transport_(transport), ranks_(static_cast<size_t>(transport.ranks())) {
    if (ranks_ > kRanksWithoutMemory) more_.resize(ranks_ * sizeof(Record));
  }

  [[nodiscard]] Status Records(const Record& mine) {
    return transport_.AllGather(std::as_bytes(std::span(&mine, 1)), Room().first(ranks_ * sizeof(Record)));
  }
  /// Returns the record of a rank. Texts() overwrites the records.
  [[nodiscard]] Record RecordOf(size_t rank) {
    Record record;
    std::memcpy(&record, Room().data() + rank * sizeof(Record), sizeof(Record));
    return record;
  }
  /// Returns the first rank whose record satisfies `is`, or the number of ranks.
  template <typename Is>
  [[nodiscard]] size_t FirstRank(const Is& is) {
    size_t rank = 0;
    while (rank < ranks_ && !is(RecordOf(rank))) ++rank;
    return rank;
  }
  [[nodiscard]] size_t ranks() const { return ranks_; }

  /// Sets texts[i] to the text of rank wanted[i]. `wanted` must be the same on every rank.
  [[nodiscard]] Status Texts(const FixedText& mine, std::span<const size_t> wanted, std::span<FixedText> texts) {
    const size_t piece = Room().size() / ranks_;
    for (size_t at = 0; at < kTextBytes; at += piece) {
      const size_t bytes = std::min(piece, kTextBytes - at);
      const std::span<std::byte> all = Room().first(bytes * ranks_);
      FA_RETURN_IF_ERROR(transport_.AllGather(std::as_bytes(std::span(mine)).subspan(at, bytes), all));
      for (size_t i = 0; i < wanted.size(); ++i) {
        std::memcpy(texts[i].data() + at, all.data() + wanted[i] * bytes, bytes);
      }
    }
    return Status::Ok();
  }

 private:
  [[nodiscard]] std::span<std::byte> Room() { return more_.empty() ? std::span<std::byte>(own_) : std::span(more_); }

  Transport& transport_;
  size_t ranks_;
  std::array<std::byte, kRanksWithoutMemory * sizeof(Record)> own_;
  std::vector<std::byte> more_;
};

uint64_t Hash(std::string_view bytes) {  // the hash FNV-1a
  uint64_t hash = 14695981039346656037ull;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

// An error may name an argument, which each rank's caller may call differently (C++ or Python). The name is sent as
// kMention NAME kPart MEMBER kPart INDEX kMention. So every rank can put in the name that its own caller uses.
constexpr char kMention = '\x1f', kPart = '\x1e';

std::string Marked(const ErrorText& what) {
  return what.Retold([](std::string_view name, std::string_view member, std::string_view index) {
    std::string argument(1, kMention);
    argument.append(name).append(1, kPart).append(member).append(1, kPart).append(index);
    return argument += kMention;
  });
}

ErrorText Unmarked(std::string_view text) {
  ErrorText what;
  while (!text.empty()) {
    const size_t begin = text.find(kMention), end = text.find(kMention, begin + 1);
    what += text.substr(0, begin);
    if (begin == text.npos || end == text.npos) break;  // the text was cut
    const std::string_view argument = text.substr(begin + 1, end - begin - 1);
    const size_t name_end = argument.find(kPart), member_end = argument.find(kPart, name_end + 1);
    what += ErrorText::Argument(argument.substr(0, name_end), argument.substr(name_end + 1, member_end - name_end - 1),
                                argument.substr(member_end + 1));
    text.remove_prefix(end + 1);
  }
  return what;
}

std::string_view LineOf(std::string_view text, size_t* at) {
  const size_t end = std::min(text.find('\n', *at), text.size());
  const std::string_view line = text.substr(*at, end - *at);
  *at = std::min(end + 1, text.size());
  return line;
}

FixedText Shortened(std::string_view text) {
  FixedText shortened{};
  std::copy_n(text.begin(), std::min(text.size(), kTextBytes - 1), shortened.begin());
  return shortened;
}

/// Returns the text of a status as it is sent. If there is no memory for the marks kMention and kPart, the text has no
/// marks.
FixedText TextOf(const Status& status) {
  try {
    return Shortened(Marked(status.what()));
  } catch (const std::bad_alloc&) {
    return Shortened(status.what().text());
  }
}

/// Returns the error of `rank`, which is the lowest rank with an error. Every rank gets this error, with the number of
/// that rank in its text.
Status ErrorOf(Gathering& all, size_t rank, const Status& mine) {
  const auto code = static_cast<StatusCode>(all.RecordOf(rank).code);
  FixedText text;
  FA_RETURN_IF_ERROR(all.Texts(TextOf(mine), {&rank, 1}, {&text, 1}));
  return {code, "rank " + std::to_string(rank) + ": " + Unmarked(text.data())};
}

/// Returns the error that says: `rank` passes pse in a form that does not fit the form of pse on an earlier rank.
Status WrongForm(Gathering& all, size_t rank) {
  const uint32_t form = all.RecordOf(rank).pse_forms;
  const size_t other = all.FirstRank([&](const Record& record) { return (record.pse_forms & form) == 0; });
  const auto words = [](uint32_t forms) {
    switch (FormOf(forms)) {
      case kOwnRows: return "the rows of its queries";
      case kSharedRow: return "one row for all queries";
      default: return "1024 rows (compressed)";
    }
  };
  return Status::InvalidArgument("rank " + std::to_string(rank) + ": " +
                                 ErrorText::Argument("pse").Says(std::string("has ") + words(form) + ", want ") +
                                 words(all.RecordOf(other).pse_forms) + " (rank " + std::to_string(other) + ")");
}

/// Returns an ErrorText that begins with the argument to which a line of the description belongs. "pse.shape[0]" is a
/// member of the argument pse, and "mask.pre" is an argument by itself.
ErrorText ArgumentOf(std::string_view line_name) {
  for (const std::string_view member : {".shape", ".dtype"}) {
    const size_t at = line_name.find(member);
    if (at == line_name.npos) continue;
    return ErrorText::Argument(line_name.substr(0, at), member, line_name.substr(at + member.size()));
  }
  return ErrorText::Argument(line_name);
}

/// Returns the error for the first line in which the descriptions of `rank` and of rank 0 differ.
Status Difference(Gathering& all, size_t rank, const std::string& mine) {
  const std::array<size_t, 2> wanted{0, rank};
  std::array<FixedText, 2> texts;
  FA_RETURN_IF_ERROR(all.Texts(Shortened(mine), wanted, texts));
  const std::string_view first = texts[0].data(), other = texts[1].data();
  size_t at = 0, at_of_first = 0;
  while (at < other.size() || at_of_first < first.size()) {
    const std::string_view line = LineOf(other, &at), want = LineOf(first, &at_of_first);
    if (line == want) continue;
    const std::string_view value = want.substr(std::min(want.find('=') + 1, want.size()));
    const size_t name_end = std::min(line.find('='), line.size());
    return Status::InvalidArgument("rank " + std::to_string(rank) + ": " + ArgumentOf(line.substr(0, name_end)) +
                                   line.substr(name_end) + ", want " + value + " (rank 0)");
  }
  return Status::InvalidArgument("the ranks disagree about the call");
}

bool Failed(const Record& record) { return record.code != 0; }

}  // namespace

void CallDescription::Add(std::string_view name, std::string_view value) {
  text_.append(name).append("=").append(value).append("\n");
}

void CallDescription::Add(std::string_view name, std::span<const int64_t> values) {
  constexpr size_t kShown = 8;
  std::string text = "[";
  for (size_t i = 0; i < std::min(values.size(), kShown); ++i) text += (i > 0 ? "," : "") + std::to_string(values[i]);
  text += values.size() > kShown ? ",...]" : "]";
  if (values.size() > kShown) {
    const auto bytes = std::as_bytes(values);
    const uint64_t hash = Hash({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    text += " (" + std::to_string(values.size()) + " numbers, hash " + std::to_string(hash) + ")";
  }
  Add(name, text);
}

Result<Agreed> AgreeOnCall(Transport& transport, const RankFacts& facts) {
  Gathering all(transport);
  const Record mine{.code = static_cast<int32_t>(facts.status.code()),
                    .isa = static_cast<int32_t>(facts.isa),
                    .workers = facts.workers,
                    .pse_forms = facts.pse_forms,
                    .hash = Hash(facts.description),
                    .memory_bytes = facts.memory_bytes};
  FA_RETURN_IF_ERROR(all.Records(mine));
  const size_t failed = all.FirstRank(Failed);
  if (failed < all.ranks()) return ErrorOf(all, failed, facts.status);
  const uint64_t want = all.RecordOf(0).hash;
  const size_t differs = all.FirstRank([&](const Record& record) { return record.hash != want; });
  if (differs < all.ranks()) return Difference(all, differs, facts.description);

  Agreed agreed{.isa = facts.isa,
                .isa_lowered = false,
                .workers = facts.workers,
                .memory_bytes = facts.memory_bytes,
                .pse_forms = kAnyForm};
  for (size_t rank = 0; rank < all.ranks(); ++rank) {
    const Record record = all.RecordOf(rank);
    const auto isa = static_cast<Isa>(record.isa);
    if (isa != agreed.isa) agreed.isa_lowered = true;
    if (Includes(agreed.isa, isa)) {
      agreed.isa = isa;
    } else if (!Includes(isa, agreed.isa)) {
      agreed.isa = Isa::kPortable;  // the ranks' processors are of different families, such as x86 and Arm
    }
    agreed.workers = std::min(agreed.workers, static_cast<int>(record.workers));
    agreed.memory_bytes = std::min(agreed.memory_bytes, record.memory_bytes);
    agreed.pse_forms &= record.pse_forms;
    if (agreed.pse_forms == 0) return WrongForm(all, rank);
  }
  return agreed;
}

Status AgreeOnStatus(Transport& transport, const Status& status) {
  Gathering all(transport);
  FA_RETURN_IF_ERROR(all.Records({.code = static_cast<int32_t>(status.code())}));
  const size_t failed = all.FirstRank(Failed);
  return failed < all.ranks() ? ErrorOf(all, failed, status) : Status::Ok();
}

}  // namespace fa::ops
