#pragma once

#include <trireme/base/types.hpp>

#include <vector>

namespace trireme::layout {

/// Placement of pipeline stages on ranks. Chunk c of all ranks together holds stages
/// c · ranks … (c + 1) · ranks − 1, so that a placement is a permutation of the ranks per chunk:
/// - round robin: stage s is on rank s mod ranks (Narayanan et al. 2021, section 2.2.2);
/// - v: odd chunks are in reverse order, so that the last rank holds neighbouring stages, and with
///   two chunks the first rank holds the first and the last stage (Qi et al. 2023, arXiv
///   2401.10241, figure 6).
struct StageMap {
  int ranks = 1;
  int chunks = 1;
  StagePlacement placement = StagePlacement::round_robin;
  bool operator==(const StageMap&) const = default;

  int stages() const { return ranks * chunks; }
  Stage last_stage() const { return stages() - 1; }
  int chunk_of(Stage stage) const { return stage / ranks; }
  Rank rank_of(Stage stage) const { return mirrored(chunk_of(stage), stage % ranks); }
  Stage stage_of(Rank rank, int chunk) const { return chunk * ranks + mirrored(chunk, rank); }
  /// Stages of a rank, ascending.
  std::vector<Stage> stages_of(Rank rank) const {
    std::vector<Stage> stages;
    for (int chunk = 0; chunk < chunks; ++chunk) stages.push_back(stage_of(rank, chunk));
    return stages;
  }
  /// Whether the stage's output stays on its rank, because the rank also has the next stage.
  bool hands_over(Stage stage) const {
    return stage < last_stage() && rank_of(stage) == rank_of(stage + 1);
  }

 private:
  int mirrored(int chunk, int i) const {
    return placement == StagePlacement::v && chunk % 2 == 1 ? ranks - 1 - i : i;
  }
};

}  // namespace trireme::layout
