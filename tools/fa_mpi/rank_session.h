#ifndef FA_TOOLS_FA_MPI_RANK_SESSION_H_
#define FA_TOOLS_FA_MPI_RANK_SESSION_H_

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fa/transport.h"

namespace fa::tool {

/// An error on which all ranks have agreed. Every rank throws it, and one rank prints it.
class AgreedError : public std::runtime_error {
 public:
  AgreedError(int exit_code, const std::string& text) : std::runtime_error(text), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// The ranks that run one command. Work that may fail on some ranks only must run in Together, so that no rank waits
/// for a rank that has failed.
class RankSession {
 public:
  explicit RankSession(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  [[nodiscard]] int rank() const { return transport_->rank(); }
  [[nodiscard]] int ranks() const { return transport_->ranks(); }
  [[nodiscard]] bool is_first() const { return rank() == 0; }
  [[nodiscard]] const std::shared_ptr<Transport>& transport() const { return transport_; }

  /// Calls `work`. All ranks must call Together. If `work` throws on some ranks, all ranks throw AgreedError with the
  /// text of the first failed rank. The text also names this rank, unless all ranks failed with the same text.
  void Together(const std::function<void()>& work) const;
  /// Returns the text of rank 0, up to 4095 bytes. All ranks must call OfFirst.
  [[nodiscard]] std::string OfFirst(const std::string& text) const;
  /// Returns the numbers of all ranks, ordered by rank. All ranks must call OfAll.
  [[nodiscard]] std::vector<double> OfAll(double number) const;

 private:
  std::shared_ptr<Transport> transport_;
};

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_MPI_RANK_SESSION_H_
