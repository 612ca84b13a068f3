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
  std::string digest = {};  ///< checksum at the end of the manifest
};

/// Reads the lineage from the manifest in a folder. Verifies the manifest's checksum, but does not
/// parse arrays and shards. Errors as for read_manifest().
Lineage read_lineage(const std::string& folder);

/// Like read_lineage, from a manifest's content; `path` names the manifest in errors.
Lineage parse_lineage(const std::string& content, const std::string& path);

/// Whether `later` continues from `earlier`, or is the same checkpoint. Checkpoints without a
/// start, which `trireme import` writes, form one series by step.
bool precedes(const Lineage& earlier, const Lineage& later);

/// A checkpoint in a directory; `name` is the name of its folder.
struct Member {
  std::string name;
  Lineage lineage;
};

/// The checkpoints in `directory` whose manifest is readable, by descending step. `unreadable`,
/// unless null, receives the names of the other checkpoints.
std::vector<Member> members_of(const std::string& directory,
                               std::vector<std::string>* unreadable = nullptr);

/// Names of the checkpoints in `directory` whose manifest is unreadable or that do not precede
/// `tip`, in descending order.
std::vector<std::string> not_on_branch(const std::string& directory, const Lineage& tip);

}  // namespace trireme::checkpoint
