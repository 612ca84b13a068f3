// Collects a local checkpoint: for each shard, a node that holds the shard copies it to the
// checkpoint directory.
#include <trireme/commands/restart.hpp>

#include <trireme/base/clock.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/node_local.hpp>
#include <trireme/checkpoint/verify.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/grid/nodes.hpp>
#include <trireme/io/atomic_file.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace trireme::commands {
namespace {

using checkpoint::NodeLocalCheckpoint;
using checkpoint::NodeLocalPart;

constexpr std::int64_t read_bytes = 4 << 20;
constexpr std::int64_t manifest_limit_bytes = std::int64_t{4} << 30;

void move_on() {
  grid::Heartbeat::publish({"restart"});
}

/// Copies a shard. A read error ends the copy and sets `damage`; errors of opening and writing are
/// thrown.
void copy_file(const std::string& from, const std::string& to, std::string& damage) {
  const io::InputFile in = checkpoint::open_member(from);
  io::AtomicFile out(to);
  out.probe_space(in.size());
  std::vector<char> piece(static_cast<std::size_t>(read_bytes));
  for (std::int64_t at = 0; at < in.size(); at += read_bytes) {
    const auto bytes = static_cast<std::size_t>(std::min(read_bytes, in.size() - at));
    try {
      in.read(at, piece.data(), bytes);
    } catch (const Error& error) {
      damage = error.what();
      return;
    }
    out.write(at, piece.data(), bytes);
    move_on();
  }
  out.commit();
}

/// The collection of one local checkpoint.
class Collection {
 public:
  Collection(grid::Runtime& runtime, const deck::CheckpointConfig& config,
             const std::vector<grid::Node>& nodes, const std::string& folder,
             NodeLocalCheckpoint wanted)
      : runtime_(runtime),
        config_(config),
        nodes_(nodes),
        folder_(folder + "/" + checkpoint::folder_name(wanted.step)),
        partial_(checkpoint::partial_folder(config.directory, wanted.step)),
        wanted_(std::move(wanted)) {}

  /// Returns the reason why the checkpoint cannot be collected; "" if it was collected.
  std::string collect(const std::function<std::string(const checkpoint::Manifest&)>& refusal) {
    const auto begin = Clock::now();
    read_manifest();
    if (manifest_.step != wanted_.step) return "its manifest cannot be read any more";
    std::string why;
    runtime_.together([&] {
      if (runtime_.rank() == 0) why = refusal(manifest_);
    });
    why = runtime_.world().broadcast(why, 0, "use of a local checkpoint");
    if (!why.empty()) return why;
    runtime_.together([&] {
      if (runtime_.rank() == 0) checkpoint::begin_inside(config_.directory, wanted_.step);
    });
    for (NodeLocalCheckpoint left = wanted_; !left.holders.empty();) {
      copy_shards(left);
      if (const std::string lost = find_other_holders(left); !lost.empty()) {
        runtime_.together([&] {
          if (runtime_.rank() == 0) checkpoint::abandon(config_.directory, wanted_.step);
        });
        return lost;
      }
    }
    runtime_.together([&] {
      if (runtime_.rank() == 0)
        checkpoint::commit(config_.directory, manifest_, files_, {}, move_on);
    });
    say("local checkpoint of step ", wanted_.step, ": ", wanted_.holders.size(), " shards on ",
        nodes_.size(), nodes_.size() == 1 ? " node" : " nodes", " copied to ", config_.directory,
        " (", fixed(seconds(Clock::now() - begin), 1), " s)");
    return "";
  }

 private:
  /// Sets manifest_ and files_ on all ranks, as read by a rank of a node that holds shards. After a
  /// read error, manifest_ does not change. Collective.
  void read_manifest() {
    const std::size_t holder = *wanted_.holders.begin()->second.begin();
    const Rank reader = nodes_[holder].ranks.front();
    std::string content;
    if (runtime_.rank() == reader) {
      try {
        const auto manifest = checkpoint::read_manifest(folder_);
        std::vector<std::string> texts{
            io::read_text_file(folder_ + "/" + checkpoint::manifest_name, manifest_limit_bytes)};
        for (const checkpoint::FileInfo& file : manifest.files)
          texts.push_back(checkpoint::read_member(folder_, manifest, file.name));
        content = pack_texts(texts);
      } catch (const Error&) {
        content.clear();
      }
    }
    content = runtime_.world().broadcast(content, reader, "manifest of a local checkpoint");
    if (content.empty()) return;
    const auto texts = unpack_texts(content);
    manifest_ = checkpoint::parse_manifest(texts.at(0), folder_ + "/" + checkpoint::manifest_name);
    for (std::size_t i = 0; i < manifest_.files.size(); ++i)
      files_[manifest_.files[i].name] = texts.at(i + 1);
  }

  /// The ranks of a node share the copying of the node's shards (checkpoint::readers), and record
  /// damaged shards. Collective.
  void copy_shards(const NodeLocalCheckpoint& left) {
    damaged_.clear();
    const std::size_t node = grid::node_of(nodes_, runtime_.rank());
    const auto& ranks = nodes_[node].ranks;
    runtime_.together([&] {
      std::size_t number = 0;
      for (const auto& [shard, reader] : checkpoint::readers(left))
        if (reader == node && ranks[number++ % ranks.size()] == runtime_.rank()) copy_shard(shard);
    });
  }

  void copy_shard(const std::string& name) {
    const auto shard = std::ranges::find(manifest_.shards, name, &checkpoint::ShardInfo::name);
    std::string damage;
    try {
      check(shard != manifest_.shards.end(), folder_, ": its manifest has no ", name);
      checkpoint::verify_structure(folder_, manifest_, *shard);
      checkpoint::verify_data(folder_, manifest_, *shard, move_on);
    } catch (const Error& error) {
      damage = error.what();
    }
    if (damage.empty()) copy_file(folder_ + "/" + name, partial_ + "/" + name, damage);
    if (!damage.empty()) damaged_.insert(damaged_.end(), {name, damage});
  }

  /// Leaves in `left` only the shards that were damaged in this round, with the other nodes that
  /// hold them. Returns the damage of the first shard that no other node holds; "" if there is
  /// none. Collective.
  std::string find_other_holders(NodeLocalCheckpoint& left) {
    const std::string all = runtime_.world().broadcast(
        pack_texts(runtime_.world().gather(pack_texts(damaged_), 0, "damaged shards")), 0,
        "damaged shards");
    const auto readers = checkpoint::readers(left);
    const auto before = std::exchange(left.holders, {});
    std::string lost;
    for (const std::string& of_rank : unpack_texts(all)) {
      const auto found = unpack_texts(of_rank);
      for (std::size_t i = 0; i + 1 < found.size(); i += 2) {
        const auto& [shard, why] = std::pair(found[i], found[i + 1]);
        std::set<std::size_t> others = before.at(shard);
        const std::size_t node = readers.at(shard);
        others.erase(node);
        if (others.empty() && lost.empty()) lost = text(nodes_[node].name, ": ", why);
        if (!others.empty() && runtime_.rank() == 0)
          log::warn(text("local checkpoint of step ", wanted_.step, " on ", nodes_[node].name, ": ",
                         why, "; another node's copy is used"));
        left.holders[shard] = std::move(others);
      }
    }
    return lost;
  }

  grid::Runtime& runtime_;
  const deck::CheckpointConfig& config_;
  const std::vector<grid::Node>& nodes_;
  std::string folder_;   ///< folder of the local checkpoint on this rank's node
  std::string partial_;  ///< folder of the unfinished copy in the checkpoint directory
  NodeLocalCheckpoint wanted_;
  checkpoint::Manifest manifest_;
  checkpoint::Files files_;
  std::vector<std::string> damaged_;  ///< shard, reason, shard, reason …
};

/// The attempt in the checkpoint directory, on all ranks. std::nullopt if there is none or, with a
/// warning, if it cannot be read. Collective.
std::optional<checkpoint::Attempt> known_run(grid::Runtime& runtime, const std::string& directory) {
  std::string packed;
  if (runtime.rank() == 0) {
    try {
      if (const auto run = checkpoint::read_attempt(directory))
        packed = pack_texts({run->run, text(run->number)});
    } catch (const Error& error) {
      log::warn(error.what());
    }
  }
  const auto texts = unpack_texts(runtime.world().broadcast(packed, 0, "local checkpoints"));
  if (texts.empty()) return std::nullopt;
  return checkpoint::Attempt{texts.at(0), std::stoll(texts.at(1))};
}

/// On rank 0, the local checkpoints of all nodes, newest first; empty on other ranks. Collective.
std::vector<NodeLocalCheckpoint> found_on(grid::Runtime& runtime,
                                          const std::vector<grid::Node>& nodes,
                                          const std::string& folder) {
  std::vector<std::string> report;
  const grid::Node& mine = nodes[grid::node_of(nodes, runtime.rank())];
  if (mine.ranks.front() == runtime.rank()) {
    std::vector<std::string> damage;
    std::vector<std::string> parts;
    for (const NodeLocalPart& part : checkpoint::parts_in(folder, damage))
      parts.push_back(pack(part));
    report = {pack_texts(parts), pack_texts(damage)};
  }
  const auto all = runtime.world().gather(pack_texts(report), 0, "local checkpoints");
  std::vector<std::vector<NodeLocalPart>> parts(nodes.size());
  for (std::size_t node = 0; node < nodes.size() && runtime.rank() == 0; ++node) {
    const auto texts = unpack_texts(all[static_cast<std::size_t>(nodes[node].ranks.front())]);
    for (const std::string& part : unpack_texts(texts.at(0)))
      parts[node].push_back(checkpoint::parse_part(part));
    for (const std::string& why : unpack_texts(texts.at(1)))
      log::warn(text("local checkpoint on ", nodes[node].name, " is skipped: ", why));
  }
  return checkpoint::assembled(parts);
}

std::string pack(const NodeLocalCheckpoint& c) {
  std::vector<std::string> texts{text(c.step), c.digest, text(c.shard_count)};
  for (const auto& [shard, nodes] : c.holders) {
    std::vector<std::string> numbers{shard};
    for (const std::size_t node : nodes) numbers.push_back(text(node));
    texts.push_back(pack_texts(numbers));
  }
  return pack_texts(texts);
}

NodeLocalCheckpoint unpack_checkpoint(const std::string& packed) {
  const auto texts = unpack_texts(packed);
  NodeLocalCheckpoint c{std::stoll(texts.at(0)), texts.at(1), std::stoll(texts.at(2)), {}};
  for (std::size_t i = 3; i < texts.size(); ++i) {
    const auto numbers = unpack_texts(texts[i]);
    for (std::size_t n = 1; n < numbers.size(); ++n)
      c.holders[numbers[0]].insert(static_cast<std::size_t>(std::stoll(numbers[n])));
  }
  return c;
}

void pass_over(std::int64_t step, const std::string& why) {
  log::warn(text("local checkpoint of step ", step, " is skipped: ", why));
}

}  // namespace

std::optional<std::int64_t> collect_local_checkpoint(
    grid::Runtime& runtime, const deck::CheckpointConfig& config, std::int64_t after,
    std::int64_t before, const std::function<std::string(const checkpoint::Manifest&)>& refusal) {
  const auto run = known_run(runtime, config.directory);
  if (!run) return std::nullopt;
  const auto nodes = grid::nodes(runtime.world());
  const std::string folder = checkpoint::local_directory(config.local, grid::node_name()) + "/" +
                             checkpoint::local_folder(*run);
  std::vector<NodeLocalCheckpoint> found = found_on(runtime, nodes, folder);
  std::erase_if(found,
                [&](const NodeLocalCheckpoint& c) { return c.step <= after || c.step >= before; });
  for (std::size_t next = 0;; ++next) {
    for (; next < found.size() && !found[next].complete(); ++next)
      pass_over(found[next].step,
                text("its ", nodes.size(), nodes.size() == 1 ? " node has " : " nodes have ",
                     found[next].holders.size(), " of ", found[next].shard_count, " shards"));
    const std::string packed = runtime.world().broadcast(
        next < found.size() ? pack(found[next]) : "", 0, "local checkpoint");
    if (packed.empty()) return std::nullopt;
    Collection collection(runtime, config, nodes, folder, unpack_checkpoint(packed));
    const std::string why = collection.collect(refusal);
    const std::int64_t step = unpack_checkpoint(packed).step;
    if (why.empty()) return step;
    if (runtime.rank() == 0) pass_over(step, why);
  }
}

}  // namespace trireme::commands
