#ifndef FA_PEAK_FOREIGN_LOAD_H_
#define FA_PEAK_FOREIGN_LOAD_H_

#include <optional>

namespace fa::bench {

/// The number of CPUs that other programs may use without making a timing doubtful. compare.py allows the same number.
inline constexpr double kMostForeignCpus = 0.1;

/// Measures how much other programs use the CPUs that this process may run on, from the construction of the object on.
class ForeignLoad {
 public:
  ForeignLoad();
  /// Returns the average number of CPUs that other programs used until now, including time that the host of a virtual
  /// machine took away. Returns nothing if the system does not report it, or for less than 0.2 s, because Linux counts
  /// in ticks of 10 ms.
  [[nodiscard]] std::optional<double> Cpus() const;

 private:
  struct Use {
    double wall = 0;
    double busy = -1;  ///< CPU seconds of all programs; -1 if the system does not report them
    double own = 0;    ///< CPU seconds of this process
  };
  [[nodiscard]] static Use Now();

  Use begin_;
};

}  // namespace fa::bench

#endif  // FA_PEAK_FOREIGN_LOAD_H_
