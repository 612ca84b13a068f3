#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// Local checkpoints: each node's disk has the shards of its ranks and copies of another node's
/// shards, in a folder of the usual form without an index. All nodes together have the whole
/// checkpoint. The files of a run are in LOCAL/trireme-RUN-ATTEMPT. docs/checkpoint.md describes
/// them.
namespace trireme::checkpoint {

/// A start of the run that writes to a checkpoint directory. The file `attempt` of the directory
/// names the last start.
struct Attempt {
  std::string run;          ///< 16 hexadecimal digits, chosen at random
  std::int64_t number = 0;  ///< grows with each start
  bool operator==(const Attempt&) const = default;
};

/// The file `attempt` of a checkpoint directory. std::nullopt if it does not exist; Error if it is
/// damaged.
std::optional<Attempt> read_attempt(const std::string& directory);

/// Begins the next attempt of the run in that file; a new run if the file does not exist or is
/// damaged. The number grows by a random amount, so that two continued copies of a directory
/// differ.
Attempt begin_attempt(const std::string& directory);

/// A whole number of at least 0 without leading zeros; std::nullopt for any other text.
std::optional<std::int64_t> parse_count(std::string_view digits);

/// "trireme-RUN-ATTEMPT": later attempts do not use its files, because they continue from another
/// checkpoint.
std::string local_folder(const Attempt& attempt);

/// [checkpoint] local of a node, with `%node%` replaced by the node's name.
std::string local_directory(const std::string& local, const std::string& node);
/// Removes a run's folders from a node's local directory, except the folder of attempt `kept`.
void remove_attempts(const std::string& directory, const std::string& run,
                     std::optional<std::int64_t> kept);

/// A node's part of a local checkpoint.
struct LocalPart {
  std::int64_t step = 0;
  std::string digest;               ///< digest of the manifest, equal in all parts
  std::int64_t shard_count = 0;     ///< shards of the whole checkpoint
  std::vector<std::string> shards;  ///< files on this node with the right size
};

/// The parts in a folder of a node, newest first. Skips damaged parts; `damage` receives one
/// message for each.
std::vector<LocalPart> parts_in(const std::string& folder, std::vector<std::string>& damage);

/// A part as a message to another node.
std::string pack(const LocalPart& part);
LocalPart parse_part(const std::string& packed);

/// A local checkpoint, and the nodes that hold each of its shards.
struct LocalCheckpoint {
  std::int64_t step = 0;
  std::string digest;
  std::int64_t shard_count = 0;
  std::map<std::string, std::set<std::size_t>> holders;

  bool complete() const { return shard_count > 0 && std::ssize(holders) == shard_count; }
};

/// The checkpoints assembled from the nodes' `parts`, newest first. Parts with different manifests
/// belong to different checkpoints.
std::vector<LocalCheckpoint> assembled(const std::vector<std::vector<LocalPart>>& parts);

/// The node that reads each shard, chosen so that all nodes read about equally many.
std::map<std::string, std::size_t> readers(const LocalCheckpoint& checkpoint);

}  // namespace trireme::checkpoint
