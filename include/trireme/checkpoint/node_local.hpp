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
/// checkpoint. See docs/checkpoint.md.
namespace trireme::checkpoint {

/// A start of the run that writes to a checkpoint directory. The file `attempt` of the directory
/// contains the last start.
struct Attempt {
  std::string run;          ///< 16 hexadecimal digits, chosen at random
  std::int64_t number = 0;  ///< grows with each start
  bool operator==(const Attempt&) const = default;
};

/// The file `attempt` of a checkpoint directory. std::nullopt if it does not exist; Error if it is
/// damaged.
std::optional<Attempt> read_attempt(const std::string& directory);

/// Begins the next attempt of the run and writes it to the file `attempt`. Begins a new run if this
/// file does not exist or is damaged. The number grows by a random amount, so that two copies of a
/// directory that are both continued have different numbers with high probability.
Attempt begin_attempt(const std::string& directory);

/// A whole number of at least 0 without leading zeros; std::nullopt for any other text.
std::optional<std::int64_t> parse_count(std::string_view digits);

/// "trireme-RUN-ATTEMPT": name of an attempt's folder.
std::string local_folder(const Attempt& attempt);

/// [checkpoint] local on a node: `local` with `%node%` replaced by the node's name.
std::string local_directory(const std::string& local, const std::string& node);
/// Removes a run's folders from a node's local directory, except the folder of attempt `kept`, if
/// given.
void remove_attempts(const std::string& directory, const std::string& run,
                     std::optional<std::int64_t> kept);

/// A node's part of a local checkpoint.
struct NodeLocalPart {
  std::int64_t step = 0;
  std::string digest;               ///< digest of the manifest, equal in all parts of a checkpoint
  std::int64_t shard_count = 0;     ///< shards of the whole checkpoint
  std::vector<std::string> shards;  ///< names of the shards on this node with the right size
};

/// The parts in a folder of a node, highest step first. Damaged parts are skipped; `damage`
/// receives one message for each of them, or for a folder that cannot be listed.
std::vector<NodeLocalPart> parts_in(const std::string& folder, std::vector<std::string>& damage);

/// Serializes a part for another node. parse_part is the inverse; Error for invalid bytes.
std::string pack(const NodeLocalPart& part);
NodeLocalPart parse_part(const std::string& packed);

/// A local checkpoint, and the nodes that hold each of its shards.
struct NodeLocalCheckpoint {
  std::int64_t step = 0;
  std::string digest;
  std::int64_t shard_count = 0;
  std::map<std::string, std::set<std::size_t>> holders;  ///< indices of nodes, by shard name

  bool complete() const { return shard_count > 0 && std::ssize(holders) == shard_count; }
};

/// The checkpoints assembled from the parts of all nodes, highest step first; of equal steps,
/// complete checkpoints first. `parts`: by node. Parts with different manifests belong to different
/// checkpoints.
std::vector<NodeLocalCheckpoint> assembled(const std::vector<std::vector<NodeLocalPart>>& parts);

/// The node that reads each shard, by the name of the shard. Each shard is assigned to the holder
/// that has the fewest shards so far.
std::map<std::string, std::size_t> readers(const NodeLocalCheckpoint& checkpoint);

}  // namespace trireme::checkpoint
