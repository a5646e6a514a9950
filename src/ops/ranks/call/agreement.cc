#include "ops/ranks/call/agreement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace fa::ops {
namespace {

// Texts travel in blocks of one length. An error or a description that is longer is cut; where only what is cut
// differs, the hashes of whole descriptions still do.
constexpr size_t kTextBytes = 4096;

struct Record {
  int32_t code = 0;
  int32_t isa = 0;
  int32_t workers = 0;
  uint32_t pse_forms = kAnyForm;
  uint64_t hash = 0;
};

uint64_t Hash(std::string_view bytes) {  // FNV-1a
  uint64_t hash = 14695981039346656037ull;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

// An argument that a text speaks of travels as kMention NAME kPart MEMBER kPart INDEX kMention, so that every rank can
// call it as its caller does.
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

/// Every rank's text.
Status GatherTexts(Transport& transport, std::string_view mine, std::vector<std::string>& texts) {
  std::array<char, kTextBytes> block{};
  std::copy_n(mine.begin(), std::min(mine.size(), kTextBytes - 1), block.begin());
  std::vector<char> all(kTextBytes * static_cast<size_t>(transport.ranks()));
  if (Status status = transport.AllGather(std::as_bytes(std::span(block)), std::as_writable_bytes(std::span(all)));
      !status.ok()) {
    return status;
  }
  for (size_t rank = 0; rank < static_cast<size_t>(transport.ranks()); ++rank) {
    texts.emplace_back(all.data() + rank * kTextBytes);
  }
  return Status::Ok();
}

/// The error of the lowest rank that has one, with its rank, on every rank.
Status FirstError(Transport& transport, std::span<const Record> records, const Status& mine) {
  std::vector<std::string> texts;
  if (Status status = GatherTexts(transport, Marked(mine.what()), texts); !status.ok()) return status;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    if (records[rank].code == 0) continue;
    return {static_cast<StatusCode>(records[rank].code), "rank " + std::to_string(rank) + ": " + Unmarked(texts[rank])};
  }
  return Status::Ok();
}

/// pse of `rank` is not read as that of the ranks before.
Status WrongForm(size_t rank, bool own_rows) {
  const char* const forms[] = {"one row for all queries", "the rows of its queries"};
  return Status::InvalidArgument("rank " + std::to_string(rank) + ": " +
                                 ErrorText::Argument("pse").Says(std::string("has ") + forms[own_rows] + ", want ") +
                                 forms[!own_rows] + " (rank 0)");
}

Status FirstDifference(Transport& transport, const std::string& mine) {
  std::vector<std::string> texts;
  if (Status status = GatherTexts(transport, mine, texts); !status.ok()) return status;
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    size_t at = 0, at_of_first = 0;
    while (at < texts[rank].size() || at_of_first < texts[0].size()) {
      const std::string_view line = LineOf(texts[rank], &at), want = LineOf(texts[0], &at_of_first);
      if (line == want) continue;
      const std::string_view value = want.substr(std::min(want.find('=') + 1, want.size()));
      const size_t name_end = std::min(line.find('='), line.size());
      return Status::InvalidArgument("rank " + std::to_string(rank) + ": " +
                                     ErrorText::Argument(line.substr(0, name_end)) + line.substr(name_end) + ", want " +
                                     value + " (rank 0)");
    }
  }
  return Status::InvalidArgument("the ranks disagree about the call");
}

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
  const auto ranks = static_cast<size_t>(transport.ranks());
  Record mine{.code = static_cast<int32_t>(facts.status.code()),
              .isa = static_cast<int32_t>(facts.isa),
              .workers = facts.workers,
              .pse_forms = facts.pse_forms,
              .hash = Hash(facts.description)};
  std::vector<Record> records(ranks);
  if (Status status =
          transport.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(records)));
      !status.ok()) {
    return status;
  }
  const auto failed = [](const Record& record) { return record.code != 0; };
  if (std::any_of(records.begin(), records.end(), failed)) return FirstError(transport, records, facts.status);
  const auto differs = [&](const Record& record) { return record.hash != records[0].hash; };
  if (std::any_of(records.begin(), records.end(), differs)) return FirstDifference(transport, facts.description);

  Agreed agreed{.isa = facts.isa, .isa_lowered = false, .workers = facts.workers, .pse_forms = kAnyForm};
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto isa = static_cast<Isa>(records[rank].isa);
    if (isa != agreed.isa) agreed.isa_lowered = true;
    if (Includes(agreed.isa, isa)) {
      agreed.isa = isa;
    } else if (!Includes(isa, agreed.isa)) {
      agreed.isa = Isa::kPortable;  // two families
    }
    agreed.workers = std::min(agreed.workers, static_cast<int>(records[rank].workers));
    agreed.pse_forms &= records[rank].pse_forms;
    if (agreed.pse_forms == 0) return WrongForm(rank, (records[rank].pse_forms & kOwnRows) != 0);
  }
  return agreed;
}

Status AgreeOnStatus(Transport& transport, const Status& status) {
  Record mine{.code = static_cast<int32_t>(status.code())};
  std::vector<Record> records(static_cast<size_t>(transport.ranks()));
  if (Status gathered =
          transport.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(records)));
      !gathered.ok()) {
    return gathered;
  }
  const bool all_well = std::all_of(records.begin(), records.end(), [](const Record& r) { return r.code == 0; });
  return all_well ? Status::Ok() : FirstError(transport, records, status);
}

}  // namespace fa::ops
