#include <trireme/base/text.hpp>
#include <trireme/plan/local_sizes.hpp>
#include <trireme/plan/memory.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

constexpr Bytes line = 64;  // alignment of arrays in an arena
Bytes up(Bytes bytes) {
  return (bytes + line - 1) / line * line;
}

constexpr std::int64_t unit = 32;  // arrays of weights begin at multiples of so many elements
std::int64_t round_up(std::int64_t n) {
  return (n + unit - 1) / unit * unit;
}

/// Elements of the weight and optimizer arenas, and of the gradient arena, which holds a second
/// gradient of the token table where one rank has look-up and logits of tied embeddings.
struct Elements {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
};

Elements local_elements(const architecture::Architecture& architecture,
                        const architecture::Shard& shard) {
  const auto arrays = architecture::local_arrays(architecture, shard);
  std::int64_t end = 0;
  for (const bool split : {true, false}) {  // the arrays that tensor ranks hold alike lie together
    for (const architecture::LocalArray& local : arrays) {
      if (local.split != split) continue;
      if (!architecture.arrays[local.number].follows_previous) end = round_up(end);
      end += local.elements();
    }
    end = round_up(end);
  }
  Elements elements{end, end};
  if (architecture.model.tied_embeddings && shard.has_embedding() && shard.has_head())
    elements.gradients += round_up(arrays.front().elements());
  return elements;
}

/// Bytes of the model's arrays in terms of one rank's sizes: shapes stand beside them as in model/.
class Activations {
 public:
  explicit Activations(const LocalSizes& sizes) : s_(sizes) {}

  Bytes residual() const { return up(s_.rows * s_.hidden * s_.element); }              // [R, D]
  Bytes qkv() const { return up(s_.tokens * 3 * width() * s_.element); }               // [T, 3hK]
  Bytes attention() const { return up(s_.tokens * width() * s_.element); }             // [T, hK]
  Bytes feed_forward() const { return up(s_.tokens * s_.feed_forward * s_.element); }  // [T, f]
  Bytes head_statistics() const {                                                      // [B, h, S]
    return up(s_.micro * s_.heads * s_.sequence * s_.accumulate);
  }
  Bytes norm_statistics() const { return 2 * up(s_.rows * s_.accumulate); }  // 2 × [R]
  Bytes gathered() const { return up(s_.tokens * s_.hidden * s_.element); }  // [T, D]

  /// x, y1, x1, y2; qkv, o; h, g; log-sum-exp and two norms' statistics.
  Bytes saved_layer() const {
    return 4 * residual() + qkv() + attention() + 2 * feed_forward() + head_statistics() +
           2 * norm_statistics();
  }
  /// Gradients at the matrix products' outputs: dz2, dy2, dz1, dy1; dh; dqkv.
  Bytes work_layer() const { return 4 * residual() + feed_forward() + qkv(); }

  /// Everything that one slot keeps of a stage.
  Bytes slot(std::int64_t layers, bool head, bool splits_backward) const {
    Bytes bytes = 2 * up(s_.tokens * 4);  // tokens and targets
    bytes += layers * saved_layer();
    if (head) bytes += 2 * residual() + norm_statistics();  // x, dy
    if (splits_backward) bytes += layers * work_layer() + residual();
    return bytes;
  }

  /// A block of logits with its losses, and the softmax's maximum, sum and target per tensor rank.
  Bytes head_scratch(int tensor_size) const {
    Bytes bytes = up(s_.logit_block * s_.vocabulary * s_.element) + up(s_.logit_block * 8);
    if (tensor_size > 1) bytes += up(3 * s_.logit_block * 8 * tensor_size) + gathered();
    return bytes;
  }

 private:
  std::int64_t width() const { return s_.heads * s_.head_size; }

  const LocalSizes& s_;
};

Bytes scratch(const LocalSizes& sizes, const architecture::Shard& shard, bool splits_backward) {
  const Activations a(sizes);
  Bytes bytes = line;  // the loss
  if (shard.has_head()) bytes += a.head_scratch(shard.tensor_size);
  bytes += a.attention() + a.head_statistics();  // within attention's backward pass
  if (!splits_backward) bytes += a.residual() + a.work_layer();
  if (sizes.cuts_tokens) bytes += 2 * a.gathered();  // all tokens before and after a product
  return bytes;
}

}  // namespace

std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard, const RankNeeds& needs) {
  const LocalSizes sizes = local_sizes(config, shard);
  const Elements elements = local_elements(architecture, shard);
  const Activations activations(sizes);
  Bytes slot = 0;
  for (const Stage stage : shard.stages) {
    const std::int64_t layers = shard.stage_layers[static_cast<std::size_t>(stage)].extent;
    const bool head = stage == shard.last_stage();
    slot = std::max(slot, activations.slot(layers, head, needs.splits_backward));
  }
  return {
      {"weights", elements.weights * sizes.element},
      {"gradients", elements.gradients * sizes.accumulate},
      {"optimizer state", 2 * up(elements.weights * sizes.accumulate)},
      {"saved activations", needs.slots * slot},
      {"transfer buffers", needs.transfer_buffers * up(sizes.slice * sizes.hidden * sizes.element)},
      {"scratch", scratch(sizes, shard, needs.splits_backward)}};
}

std::vector<MemoryRow> training_memory(const deck::Config& config,
                                       const architecture::Architecture& architecture, int slots) {
  auto rows = training_memory(config, architecture, architecture::whole_model(architecture),
                              RankNeeds{slots, 0, false});
  std::erase_if(rows, [](const MemoryRow& row) { return row.what == "transfer buffers"; });
  return rows;
}

Bytes total(const std::vector<MemoryRow>& rows) {
  Bytes sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return sum;
}

std::string table(const std::vector<MemoryRow>& rows) {
  std::string out;
  const auto add = [&out](const std::string& what, Bytes bytes) {
    const std::string amount = human_bytes(bytes);
    out += "  " + what + std::string(what.size() < 20 ? 20 - what.size() : 1, ' ');
    out += std::string(amount.size() < 10 ? 10 - amount.size() : 0, ' ') + amount + "\n";
  };
  for (const MemoryRow& row : rows) add(row.what, row.bytes);
  add("sum", total(rows));
  out.pop_back();
  return out;
}

}  // namespace trireme::plan
