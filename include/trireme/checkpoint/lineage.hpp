#pragma once

#include <trireme/checkpoint/manifest.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// Position of a checkpoint in the history of its run.
struct Lineage {
  std::int64_t step = 0;
  std::vector<Start> starts;
  std::string digest = {};  ///< digest of the manifest
};

/// Reads the lineage from a folder's manifest, without its arrays and shards. Errors as for
/// read_manifest.
Lineage read_lineage(const std::string& folder);

/// Reads the lineage from a manifest's content. Errors as for parse_manifest.
Lineage parse_lineage(const std::string& content, const std::string& path);

/// Whether `later` continues from `earlier`, or is the same checkpoint. Checkpoints without a
/// start, which `trireme import` writes, form one series by step.
bool precedes(const Lineage& earlier, const Lineage& later);

/// A checkpoint of a directory.
struct Member {
  std::string name;
  Lineage lineage;
};

/// The checkpoints in `directory` with a readable manifest, by descending step. `unreadable`, if
/// given, receives the names of the other checkpoints.
std::vector<Member> members_of(const std::string& directory,
                               std::vector<std::string>* unreadable = nullptr);

/// Names of the checkpoints in `directory` that do not precede `tip`: other branches of its run,
/// other runs, and checkpoints with an unreadable manifest.
std::vector<std::string> not_on_branch(const std::string& directory, const Lineage& tip);

}  // namespace trireme::checkpoint
