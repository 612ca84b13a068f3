#pragma once

#include <trireme/deck/enums.hpp>
#include <trireme/grid/communicator.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::train {

/// Finding of an audit about one rank.
struct Finding {
  enum Level : std::int64_t {
    none,
    received,   ///< the first wrong values are values that the rank received
    suspected,  ///< this rank or another rank is wrong
    wrong
  };
  Level level = none;
  std::string what;  ///< "computed other numbers: gradient of layers.0.attention.query"

  /// Keeps the more serious finding.
  void add(Level other, const std::string& other_what) {
    if (other > level) *this = {other, other_what};
  }
};

/// A rank that an audit reports.
struct Suspect {
  Rank rank = 0;
  std::string host;
  std::string device;  ///< empty where kernels run on the host
  std::string what;
  bool certain = true;
};

/// Returns, on every rank, the ranks that are suspected or wrong; if there are none, the ranks that
/// received wrong values. At most the first 16 ranks. Collective.
std::vector<Suspect> suspects_of(grid::Communicator& world, const Finding& mine);

/// Reports suspects in the log, as events and in `directory`/suspect_hosts. Unless `repaired`,
/// throws on all ranks with the code ExitCode::wrong_numbers. `step`: the first step that was not
/// applied. Error if `suspects` is empty. Collective.
void report_suspects(grid::Communicator& world, const std::string& directory, std::int64_t step,
                     const std::vector<Suspect>& suspects, bool repaired);

}  // namespace trireme::train
