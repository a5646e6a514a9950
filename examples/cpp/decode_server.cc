// A server that decodes: requests come, grow by a token per step and leave. Each step computes all active requests in
// one call.
//
// Keys and values lie in pages of a pool. A request has a row of the block table. A request takes a page when its last
// page is full, and gives its pages back when it leaves. The bits of an answer depend neither on the pages nor on the
// other requests. To show that, the program decodes every request once more, alone and in contiguous memory, and
// compares.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <vector>

#include "fa/fa.h"
#include "matrix.h"

namespace {

constexpr int64_t kHeads = 4, kHeadsKv = 2, kHeadSize = 16, kRow = kHeadsKv * kHeadSize;
constexpr int64_t kPageRows = 8, kPages = 24, kMostPages = 6;

/// The query, key and value that a model would compute for token `token` of request `request`.
struct Token {
  Token(int request, int64_t token)
      : query(RandomMatrix<float>(1, kHeads * kHeadSize, 1, Seed(request, token, 0))),
        key(RandomMatrix<float>(1, kRow, 1, Seed(request, token, 1))),
        value(RandomMatrix<float>(1, kRow, 1, Seed(request, token, 2))) {}
  Matrix<float> query, key, value;

 private:
  static uint32_t Seed(int request, int64_t token, uint32_t of) {
    return (static_cast<uint32_t>(request) * 1000 + static_cast<uint32_t>(token)) * 3 + of;
  }
};

struct Request {
  int number;
  int64_t prompt, last;  ///< number of tokens before the first step, and number of tokens with which the request leaves
  int64_t tokens = 0;
  std::vector<int32_t> pages = {};
  std::vector<float> answers = {};  ///< the outputs of the request, one per step
};

class Server {
 public:
  Server() {
    for (int32_t page = kPages; page-- > 0;) free_.push_back(page);
  }

  /// Takes the request in if there are pages for all its tokens.
  bool Admit(Request& request) {
    const auto pages = static_cast<size_t>((request.last + kPageRows - 1) / kPageRows);
    if (promised_ + pages > kPages) return false;
    promised_ += pages;
    while (request.tokens < request.prompt) Append(request, Token(request.number, request.tokens));
    active_.push_back(&request);
    return true;
  }

  /// Decodes one more token of every active request.
  void Step() {
    const auto batch = static_cast<int64_t>(active_.size());
    std::vector<float> q, out(static_cast<size_t>(batch * kHeads * kHeadSize));
    std::vector<int64_t> lengths;
    // The library ignores table entries of pages that have no used keys.
    std::vector<int32_t> table(static_cast<size_t>(batch * kMostPages), -1);
    for (size_t i = 0; i < active_.size(); ++i) {
      Request& request = *active_[i];
      const Token token(request.number, request.tokens);
      Append(request, token);
      q.insert(q.end(), token.query.values.begin(), token.query.values.end());
      lengths.push_back(request.tokens);
      std::copy(request.pages.begin(), request.pages.end(), table.begin() + static_cast<int64_t>(i) * kMostPages);
    }
    const fa::TensorView keys[] = {fa::View(keys_.data(), {kPages, kPageRows, kHeadsKv, kHeadSize})};
    const fa::TensorView values[] = {fa::View(values_.data(), {kPages, kPageRows, kHeadsKv, kHeadSize})};
    fa::DecodeAttentionArgs args;
    args.q = fa::View(q.data(), {batch, 1, kHeads, kHeadSize});
    args.k = keys;
    args.v = values;
    args.lengths_kv = lengths;
    args.block_table = fa::View(table.data(), {batch, kMostPages});
    args.out = fa::View(out.data(), {batch, 1, kHeads, kHeadSize});
    Require(fa::DecodeAttention(args, {.layout = fa::Layout::kBSND}));
    for (size_t i = 0; i < active_.size(); ++i) {
      const auto begin = out.begin() + static_cast<int64_t>(i) * kHeads * kHeadSize;
      active_[i]->answers.insert(active_[i]->answers.end(), begin, begin + kHeads * kHeadSize);
    }
    Release();
  }

  [[nodiscard]] size_t active() const { return active_.size(); }
  [[nodiscard]] size_t free_pages() const { return free_.size(); }

 private:
  void Append(Request& request, const Token& token) {
    if (request.tokens % kPageRows == 0) {
      request.pages.push_back(free_.back());
      free_.pop_back();
    }
    const auto at = static_cast<size_t>((request.pages.back() * kPageRows + request.tokens % kPageRows) * kRow);
    std::copy(token.key.values.begin(), token.key.values.end(), keys_.begin() + static_cast<int64_t>(at));
    std::copy(token.value.values.begin(), token.value.values.end(), values_.begin() + static_cast<int64_t>(at));
    ++request.tokens;
  }

  void Release() {
    const auto done = [this](Request* request) {
      if (request->tokens < request->last) return false;
      promised_ -= request->pages.size();
      free_.insert(free_.end(), request->pages.begin(), request->pages.end());
      return true;
    };
    active_.erase(std::remove_if(active_.begin(), active_.end(), done), active_.end());
  }

  std::vector<float> keys_ = std::vector<float>(kPages * kPageRows * kRow);
  std::vector<float> values_ = std::vector<float>(kPages * kPageRows * kRow);
  std::vector<int32_t> free_;
  std::vector<Request*> active_;
  size_t promised_ = 0;
};

/// Returns the answers of a request that has contiguous keys and a server of its own.
std::vector<float> Alone(const Request& request) {
  std::vector<float> keys, values, answers;
  for (int64_t token = 0; token < request.last; ++token) {
    const Token now(request.number, token);
    keys.insert(keys.end(), now.key.values.begin(), now.key.values.end());
    values.insert(values.end(), now.value.values.begin(), now.value.values.end());
    if (token < request.prompt) continue;
    std::array<float, kHeads* kHeadSize> out = {};
    const fa::TensorView k[] = {fa::View(keys.data(), {1, token + 1, kHeadsKv, kHeadSize})};
    const fa::TensorView v[] = {fa::View(values.data(), {1, token + 1, kHeadsKv, kHeadSize})};
    fa::DecodeAttentionArgs args;
    args.q = fa::View(now.query.data(), {1, 1, kHeads, kHeadSize});
    args.k = k;
    args.v = v;
    args.out = fa::View(out.data(), {1, 1, kHeads, kHeadSize});
    Require(fa::DecodeAttention(args, {.layout = fa::Layout::kBSND}));
    answers.insert(answers.end(), out.begin(), out.end());
  }
  return answers;
}

}  // namespace

int main() {
  std::deque<Request> requests;
  for (int number = 0; number < 10; ++number) {
    const int64_t prompt = 1 + 7 * number % 30;
    requests.push_back({.number = number, .prompt = prompt, .last = prompt + 3 + 5 * number % 11});
  }
  Server server;
  size_t admitted = 0, steps = 0, most = 0;
  while (admitted < requests.size() || server.active() > 0) {
    while (admitted < requests.size() && server.Admit(requests[admitted])) ++admitted;
    most = std::max(most, server.active());
    server.Step();
    ++steps;
  }
  std::printf("%zu requests in %zu steps, at most %zu at a time\n", requests.size(), steps, most);
  Require(most > 1, "requests were batched");
  Require(server.free_pages() == kPages, "every page came back");
  for (const Request& request : requests) {
    const std::vector<float> alone = Alone(request);
    Require(!alone.empty() && alone.size() == request.answers.size() &&
                std::memcmp(alone.data(), request.answers.data(), alone.size() * sizeof(float)) == 0,
            "a request alone has the bits of the request in the batch");
  }
  std::printf("every request has the bits that it has alone\n");
  return 0;
}
