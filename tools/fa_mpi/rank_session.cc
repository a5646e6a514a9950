#include "fa_mpi/rank_session.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "flags/failure.h"
#include "program.h"

namespace fa::tool {
namespace {

/// How `work` ended on one rank, as a message to the other ranks.
struct Outcome {
  int32_t exit_code = 0;
  std::array<char, 2044> text = {};

  void Set(int code, const char* words) {
    exit_code = code;
    for (size_t i = 0; i + 1 < text.size() && words[i] != '\0'; ++i) text[i] = words[i];
  }
};

Outcome OutcomeOf(const std::function<void()>& work) {
  Outcome outcome;
  try {
    work();
  } catch (const UsageError& error) {
    outcome.Set(kBadArguments, error.what());
  } catch (const std::bad_alloc&) {
    outcome.Set(kFailure, "out of memory");
  } catch (const std::exception& error) {
    outcome.Set(kFailure, error.what());
  }
  return outcome;
}

template <typename T>
std::vector<T> Gather(Transport& transport, const T& mine) {
  std::vector<T> all(static_cast<size_t>(transport.ranks()));
  const Status status = transport.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  if (!status.ok()) throw Failure(status.message());
  return all;
}

}  // namespace

void RankSession::Together(const std::function<void()>& work) const {
  const std::vector<Outcome> all = Gather(*transport_, OutcomeOf(work));
  const auto failed = [](const Outcome& outcome) { return outcome.exit_code != 0; };
  const auto first = std::find_if(all.begin(), all.end(), failed);
  if (first == all.end()) return;
  const auto says_the_same = [&](const Outcome& outcome) {
    return outcome.exit_code == first->exit_code && outcome.text == first->text;
  };
  const bool everybody = std::all_of(all.begin(), all.end(), says_the_same);
  const std::string who = everybody ? "" : "rank " + std::to_string(first - all.begin()) + ": ";
  throw AgreedError(first->exit_code, who + first->text.data());
}

std::string RankSession::OfFirst(const std::string& text) const {
  constexpr size_t kMost = 4096;
  std::array<char, kMost> block = {};
  std::copy_n(text.begin(), std::min(text.size(), kMost - 1), block.begin());
  return Gather(*transport_, block).front().data();
}

std::vector<double> RankSession::OfAll(double number) const { return Gather(*transport_, number); }

}  // namespace fa::tool
