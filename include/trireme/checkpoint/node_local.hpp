#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// Local checkpoints: each node's disk has the shards of its ranks and, with several nodes, copies
/// of another node's shards. A node's folder is a checkpoint folder without an index and with a
/// part of the shards. See docs/checkpoint.md.
namespace trireme::checkpoint {

/// A start of a run. The file `attempt` of a checkpoint directory contains the run's last start.
struct Attempt {
  std::string run;          ///< 16 hexadecimal digits, chosen at random
  std::int64_t number = 0;  ///< grows with each start
  bool operator==(const Attempt&) const = default;
};

/// The file `attempt` of a checkpoint directory. std::nullopt if it does not exist; Error if it is
/// damaged or unreadable.
std::optional<Attempt> read_attempt(const std::string& directory);

/// Begins the next attempt of the run, or a new run if the file `attempt` does not exist or is
/// damaged, and writes this file. The number grows by a random amount, so that two copies of a
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

/// The parts in a folder of a node, highest step first. Skips damaged parts. `damage` receives one
/// message per damaged part, or a message about a folder that cannot be listed.
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

/// The checkpoints assembled from the parts of all nodes (`parts`: by node), highest step first; of
/// equal steps, complete checkpoints first. Parts of one checkpoint have the same manifest.
std::vector<NodeLocalCheckpoint> assembled(const std::vector<std::vector<NodeLocalPart>>& parts);

/// The node that reads each shard, by the shard's name: the holder with the fewest shards so far.
std::map<std::string, std::size_t> readers(const NodeLocalCheckpoint& checkpoint);

}  // namespace trireme::checkpoint
