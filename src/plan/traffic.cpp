// Messages of a rank per step, from the operations, the stages and the buckets of gradients.
#include <trireme/plan/traffic.hpp>

#include <trireme/architecture/adapter.hpp>
#include <trireme/architecture/arrangement.hpp>
#include <trireme/architecture/bucket_cut.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/fp8.hpp>
#include <trireme/architecture/frozen.hpp>
#include <trireme/architecture/matrix_axes.hpp>
#include <trireme/architecture/objective.hpp>
#include <trireme/base/alignment.hpp>
#include <trireme/base/text.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/muon.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/servers.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <algorithm>
#include <map>

namespace trireme::plan {
namespace {

using architecture::Architecture;
using architecture::Pass;
using architecture::RankArray;
using architecture::Shard;

class Counter {
 public:
  Counter(const deck::Config& config, const Architecture& architecture, const Shard& shard,
          bool split_backward, const Machine& machine)
      : config_(config),
        machine_(machine),
        parallel_(config.parallel),
        trust_norms_(config.optimizer.rule().norms(config.optimizer)),
        maxima_(config.precision.products == Products::fp8
                    ? 4 * architecture::fp8_tensors(architecture)
                    : 0),
        architecture_(architecture),
        objective_(architecture::objective_of(architecture.model)),
        programs_(layer_programs(config, architecture, shard, split_backward, machine)),
        shard_(shard),
        sizes_(typed_sizes(config, shard, machine)),
        arrays_(architecture::rank_arrays(architecture, shard)),
        micro_batches_(config.micro_batches()),
        tokens_bytes_(sizes_.tokens * sizes_.hidden * sizes_.element),
        slice_bytes_(sizes_.slice * sizes_.hidden * sizes_.element) {}

  /// Adds the messages of the layers' passes, which repeat for every micro-batch.
  void layers() {
    const std::vector<std::int64_t> all = layers_from(0);
    const std::vector<std::int64_t> with_backward = layers_from(architecture_.first_backward);
    using architecture::BlockProgram;
    for (const bool again : {false, true})
      for (const auto phase : {&BlockProgram::forward, &BlockProgram::backward,
                               &BlockProgram::backward_input, &BlockProgram::backward_weight})
        for (std::size_t k = 0; k < programs_.size(); ++k)
          for (const architecture::OperationCall& call : (programs_[k].*phase).calls)
            if (call.again == again)
              send(architecture_.layer_kinds()[k], static_cast<std::size_t>(call.operation),
                   call.pass, again ? "layers again" : text("layers", name_of(call.pass)),
                   phase == &BlockProgram::forward ? all[k] : with_backward[k]);
  }

  void ends() {
    const auto send_all = [this](const architecture::BlockDescription& part) {
      for (const Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight})
        for (std::size_t i = part.operations.size(); i-- > 0;) {
          const architecture::Operation& op = part.operations[i];
          const bool once = op.kind == architecture::OperationKind::cross_entropy;
          send(part, i, pass, text(op.name, once ? "" : name_of(pass)), 1);
        }
    };
    if (shard_.shares_vocabulary()) return vocabulary();
    if (shard_.has_embedding()) send_all(architecture_.embedding());
    if (shard_.has_head())
      send_all(describe_head(architecture_.model, architecture::head_gradient(parallel_)));
  }

  /// Adds the messages of a vocabulary that all pipeline ranks share.
  void vocabulary() {
    const std::int64_t m = micro_batches_;
    const Bytes of_row = 3 * 8;  // statistics of a row
    tensor("look-up: reduce-scatter", m, tokens_bytes_);
    tensor("logits: all-gather of inputs", m, tokens_bytes_);
    tensor("cross entropy: all-gather", m, sizes_.targets * of_row * shard_.tensor_size);
    tensor("logits backward: reduce-scatter", m, tokens_bytes_);
    tensor("look-up backward: all-gather", m, tokens_bytes_);
    if (!sizes_.cuts_tokens) {
      if (shard_.has_embedding()) tensor("look-up: all-gather", m, tokens_bytes_);
      if (shard_.has_head()) tensor("logits backward: all-gather", m, tokens_bytes_);
    }
    const auto share = [&](const char* what, Bytes bytes) {
      add("vocabulary", what, parallel_.pipeline, m, m * bytes);
    };
    share("look-up: reduce to the first stage", slice_bytes_);
    share("last stage's output: broadcast", slice_bytes_);
    share("cross entropy: all-gather", parallel_.pipeline * sizes_.targets * of_row);
    share("its gradient: reduce to the last stage", slice_bytes_);
    share("look-up backward: broadcast", slice_bytes_);
  }

  /// Adds the sums over tensor ranks of gradients of which each rank computed only a part, and the
  /// sums of norms of adapted weights.
  void replicated_gradients() {
    const auto placement = architecture::place(architecture_, shard_, arrays_);
    const auto add_all = [&](const char* what, bool partial) {
      if (parallel_.has_servers()) return;  // servers sum these gradients
      for (const Stage stage : shard_.stages) {
        const layout::Slice run = architecture::replicated_part(arrays_, placement, stage, partial);
        if (run.extent > 0) tensor(what, 1, run.extent * sizes_.accumulate);
      }
    };
    if (sizes_.cuts_tokens) add_all("norms and biases: all-reduce", false);
    add_all(config_.model.adapter.present()        ? "adapters: all-reduce"
            : config_.model.experts.counts_batch() ? "norms of heads, tokens of experts: all-reduce"
                                                   : "norms of heads: all-reduce",
            true);
    const std::vector<std::int64_t> here = layers_from(0);
    std::map<std::int64_t, std::int64_t>
        norms;  // sums of a width, which encoders of images differ in
    for (std::size_t k = 0; k < here.size(); ++k)
      for (const auto& product :
           architecture::scaled_products(architecture_.layer_kinds()[k], sizes_))
        if (product.split_inputs) norms[product.outputs] += here[k];
    for (const auto& [outputs, count] : norms)
      tensor("norms of weights: all-reduce", count, outputs * sizes_.accumulate);
    for (const auto& part : architecture::shared_parts(arrays_, placement))
      if (part.partial_gradient || (!part.split && sizes_.cuts_tokens))
        tensor("shared layers: all-reduce", 1, part.run.extent * sizes_.accumulate);
  }

  /// Adds the sums of gradients of shared heads of keys and values, which each tensor rank computed
  /// only over its own query heads.
  void shared_heads() {
    for (const RankArray& array : arrays_)
      for (const architecture::Piece& piece : array.pieces)
        if (array.split && !array.frozen && piece.holders.extent > 1)
          add("shared", "gradients of keys and values: all-reduce", piece.holders.extent, 1,
              piece.elements() * sizes_.accumulate);
  }

  /// Adds the messages between stages of this rank and adjacent stages on other ranks.
  void boundaries() {
    std::int64_t out = 0, in = 0;
    for (const Stage stage : shard_.stages) {
      if (stage < shard_.last_stage() && !shard_.holds(stage + 1)) out += micro_batches_;
      if (stage > 0 && !shard_.holds(stage - 1)) in += micro_batches_;
    }
    const auto gathers = [&](const char* what, std::int64_t messages) {
      const Bytes source = sizes_.source.tokens * sizes_.source.hidden * sizes_.element;
      tensor(what, (1 + sizes_.modules) * messages, tokens_bytes_);
      if (source > 0) tensor(what, messages, source);
    };
    if (!sizes_.cuts_tokens) {
      gathers("received activations: all-gather", in);
      gathers("received gradients: all-gather", out);
    }
    const Bytes slice = sizes_.boundary_bytes(sizes_.slice, sizes_.source.slice);
    add("pipeline", "activations: send", 2, out, out * slice);
    add("pipeline", "gradients: send", 2, in, in * slice);
  }

  void data() {
    const std::int64_t most = std::max<std::int64_t>(1, parallel_.bucket_bytes / sizes_.accumulate);
    const auto placement = architecture::place(architecture_, shard_, arrays_);
    const auto replicas = static_cast<int>(parallel_.replicas());
    const char* const data = parallel_.context > 1 ? "replicas" : "data";
    const bool shared = parallel_.divides_state();
    const std::int64_t group = parallel_.shard_ranks();
    const bool scatters = shared && group == replicas;
    const char* const shards = group == replicas ? data : "shard group";
    const auto apart = static_cast<int>(parallel_.expert);
    const std::string experts_data = apart > 1 ? "same experts" : data;
    const std::string experts_shards = group == replicas ? experts_data : "shard group of experts";
    MessageSum gradients, weights, expert_gradients, expert_weights;
    const architecture::Division division = architecture::division_of(config_);
    const auto cut = [&](architecture::CutOf of) {
      return architecture::BucketCut(architecture_, shard_, arrays_, placement, most,
                                     static_cast<int>(group), division.by_block(), of);
    };
    cut(architecture::CutOf::gradients).visit([&](const architecture::BucketRun& run) {
      (run.expert_ranks > 1 ? expert_gradients : gradients).add(run.count, run.size());
      if (run.begin < placement.trained && !division.weights)
        (run.expert_ranks > 1 ? expert_weights : weights).add(run.count, run.size());
    });
    if (division.weights) {
      const architecture::BucketCut of_weights = cut(architecture::CutOf::weights);
      const auto places = architecture::arranged_weights(of_weights, division, 0);
      const auto gathers =
          unit_gathers(config_, architecture_, shard_, places, programs_, machine_);
      of_weights.visit([&](const architecture::BucketRun& run) {
        const auto* turn = places.run_of(run.begin);
        const bool gathered = turn != nullptr && turn->takes_turns;
        const std::int64_t times = gathered ? gathers[static_cast<std::size_t>(turn->unit)] : 1;
        (run.expert_ranks > 1 ? expert_weights : weights).add(run.count * times, run.size());
      });
    }
    const char* const sums = scatters ? "gradients: reduce-scatter" : "gradients: all-reduce";
    add(data, sums, replicas, gradients.number, gradients.elements * sizes_.accumulate);
    add(experts_data, sums, replicas / apart, expert_gradients.number,
        expert_gradients.elements * sizes_.accumulate);
    if (maxima_ > 0) add(data, "maxima of fp8 tensors: all-reduce", replicas, 1, maxima_);
    if (shard_.has_head() || objective_.loss_sums() > objective_.head_losses())
      losses(data, replicas);
    noise(data, replicas);
    if (config_.optimizer.rule().has(rules::PassKind::whole_matrices, config_.optimizer))
      for (const architecture::MatrixRounds& rounds :
           architecture::matrix_rounds(architecture_, shard_, arrays_, static_cast<int>(group)))
        muon(rounds, rounds.replicas() < group ? experts_shards : shards);
    if (const Bytes of_factors =
            architecture::factors(architecture_, arrays_, config_.optimizer).sum_bytes();
        of_factors > 0) {
      constexpr auto what = "sums of rows and columns: all-reduce";
      tensor(what, 1, of_factors);
      if (shared)
        add(shards, what, group, 1, of_factors);
      else
        add("experts", what, apart, 1, of_factors);
    }
    if (!shared) return;
    add(shards, "weights: all-gather", group, weights.number, weights.elements * sizes_.element);
    add(experts_shards, "weights: all-gather", group / apart, expert_weights.number,
        expert_weights.elements * sizes_.element);
    const auto norms = [&](const std::string& axis, std::int64_t ranks, std::int64_t blocks) {
      if (blocks == 0) return;
      add(axis, "gradient norm: all-reduce", ranks, 1, blocks * 8);
      if (trust_norms_ > 0)
        add(axis, "trust ratios: all-reduce", ranks, 1, trust_norms_ * blocks * 8);
    };
    norms(shards, group, norm_blocks(false));
    norms(experts_shards, group / apart, norm_blocks(true));
  }

  /// Replica 0 represents all replicas.
  void muon(const architecture::MatrixRounds& rounds, const std::string& axis) {
    const int group = rounds.replicas();
    const auto messages = muon_traffic(rounds, shard_.tensor_rank, 0, parallel_.divides_state());
    const auto send = [&](const std::string& on, const char* what, int ranks, const MessageSum& m) {
      add(on, what, ranks, m.number, m.elements * sizes_.accumulate);
    };
    send(axis, "parts of matrices: reduce-scatter", group, messages.collected);
    send(axis, "parts of updates: all-gather", group, messages.returned);
    send("tensor", "matrices: all-gather", shard_.tensor_size, messages.gathered);
    send("tensor", "updates of matrices: broadcast", shard_.tensor_size, messages.broadcast);
  }

  void noise(const char* axis, std::int64_t ranks) {
    if (config_.run.gradient_noise_scale)
      add(axis, "gradient noise scale: all-reduce", ranks, 1, 8);
  }

  /// Number of blocks in the pieces that this rank counts in the norm: of experts that replicas
  /// divide, or of other arrays.
  std::int64_t norm_blocks(bool of_experts) const {
    std::int64_t blocks = 0;
    for (const RankArray& array : arrays_)
      if (array.of_experts == of_experts)
        for (const architecture::Piece& piece : array.pieces)
          if (piece.counted && !array.frozen && !architecture_.arrays[array.number].counts_tokens)
            blocks += divided_up(piece.elements(), norm_block);
    return blocks;
  }

  /// Adds the sums of gradients of shared layers, whose arrays every pipeline rank has.
  void shared_layers() {
    const auto placement = architecture::place(architecture_, shard_, arrays_);
    for (const auto& part : architecture::shared_parts(arrays_, placement))
      add("pipeline", "shared layers: all-reduce", parallel_.pipeline, 1,
          part.run.extent * sizes_.accumulate);
  }

  void tied() {
    if (!architecture_.model.tied_embeddings || shard_.shares_vocabulary() ||
        shard_.has_embedding() == shard_.has_head() ||
        architecture::is_frozen(architecture_.model, "embedding.token"))
      return;
    add("tied", "token table's gradient: all-reduce", 2, 1,
        sizes_.vocabulary * sizes_.hidden * sizes_.accumulate);
  }

  /// Adds the messages of the norm, with one sum of squares per array and tensor rank, and of other
  /// values of all ranks of a model.
  void norm() {
    const auto sums = static_cast<std::int64_t>(architecture_.arrays.size()) * shard_.tensor_size;
    const std::int64_t ranks = parallel_.pipeline * parallel_.tensor;
    add("model", "gradient norm: all-reduce", ranks, 1, sums * 8);
    add("experts", "gradient norm: all-reduce", parallel_.expert, 1, sums * 8);
    add("experts", "trust ratios: all-reduce", parallel_.expert, trust_norms_,
        trust_norms_ * sums * 8);
    if (trust_norms_ > 0)
      add("model", "trust ratios: all-reduce", ranks, 1, trust_norms_ * sums * 8);
    if (maxima_ > 0) add("model", "maxima of fp8 tensors: all-reduce", ranks, 1, maxima_);
    losses("model", ranks);
    noise("model", ranks);
  }

  /// Adds the sum of the losses of overlapping steps. Other steps sum losses only when they are
  /// logged; these sums are not counted.
  void losses(const char* axis, std::int64_t ranks) {
    if (parallel_.overlaps_steps())
      add(axis, "losses: all-reduce", ranks, 1, objective_.loss_sums() * 8);
  }

  std::vector<TrafficRow> take() { return std::move(rows_); }

 private:
  /// Number of the rank's layers of each kind, from block `first` on.
  std::vector<std::int64_t> layers_from(std::int64_t first) const {
    std::vector<std::int64_t> sums(programs_.size());
    for (const Stage stage : shard_.stages) {
      const layout::Slice& layers = shard_.stage_layers[static_cast<std::size_t>(stage)];
      const std::int64_t begin =
          std::clamp(first - architecture::block_of_layer(0), layers.offset, layers.end());
      const auto counts = architecture_.count_kinds({begin, layers.end() - begin});
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += counts[k];
    }
    return sums;
  }

  static const char* name_of(Pass pass) { return pass == Pass::forward ? " forward" : " backward"; }
  /// Adds the message of an operation's pass, if there is one, for `layers` layers and all
  /// micro-batches.
  void send(const architecture::BlockDescription& part, std::size_t operation, Pass pass,
            const std::string& name, std::int64_t layers) {
    const architecture::Operation& op = part.operations[operation];
    const TypedSizes sizes = sizes_.of(part.stream);
    if (op.kind == architecture::OperationKind::attention) ring(pass, name, layers);
    if (const auto sum = rule_of(op.kind).context_sum; sum != nullptr && has_pass(op, pass))
      if (const auto summed = sum(op, pass)) {
        const auto& t = part.tensors[static_cast<std::size_t>(*summed)];
        if (t.rows != architecture::Rows::none)
          add("context", text(name, ": all-reduce"), sizes_.context_ranks, layers * micro_batches_,
              layers * micro_batches_ * rows_of(t.rows, sizes_) * columns_of(t.columns, sizes_) *
                  bytes_of(t.numbers, sizes_.element, sizes_.accumulate));
      }
    if (const auto exchange = rule_of(op.kind).exchange; exchange != nullptr && has_pass(op, pass))
      if (const auto rows = exchange(op, pass)) copies(part, *rows, name, layers * micro_batches_);
    const auto message = message_of(op, pass, part.tensors, sizes_.cuts_tokens);
    if (!message) return;
    const auto& t = part.tensors[static_cast<std::size_t>(message->tensor)];
    const bool of_inputs = pass == Pass::backward_weight && message->tensor == op.input();
    const bool blocks = t.rows == architecture::Rows::logit_block;
    const std::int64_t rows = all_rows_of(t.rows, sizes);
    const std::int64_t times = layers * micro_batches_;
    add("tensor",
        text(name, ": ", architecture::name_of(message->collective), of_inputs ? " of inputs" : ""),
        shard_.tensor_size,
        times * (!blocks     ? 1
                 : rows == 0 ? 0
                             : divided_up(rows, sizes_.logit_block)),
        times * rows * columns_of(t.columns, sizes_) *
            bytes_of(t.numbers, sizes_.element, sizes_.accumulate));
  }
  /// Adds the copies of tokens' rows for experts of other replicas, or the rows that return. Their
  /// number depends on the data: these are the most.
  void copies(const architecture::BlockDescription& part, const architecture::Exchange& exchange,
              const std::string& name, std::int64_t times) {
    const auto& t = part.tensors[static_cast<std::size_t>(exchange.columns)];
    const std::int64_t rows = architecture::exchanged_rows(exchange, architecture_.model, sizes_);
    add("experts", text(name, exchange.returns ? ": return, at most" : ": all-to-all, at most"),
        parallel_.expert, times,
        times * rows * columns_of(t.columns, sizes_) *
            bytes_of(t.numbers, sizes_.element, sizes_.accumulate));
  }
  /// Adds the messages of the ring. A rank sends all blocks of keys and values except the block of
  /// the next rank, and the gradients of all blocks.
  void ring(Pass pass, const std::string& name, std::int64_t layers) {
    const std::int64_t ranks = sizes_.context_ranks;
    const std::int64_t times = layers * micro_batches_;
    if (pass == Pass::backward_weight || sizes_.groups() == 0) return;
    const std::int64_t of_token = times * sizes_.micro * 2 * sizes_.groups();
    const std::int64_t sequence = architecture_.model.sequence;
    const std::int64_t last =
        layout::split(sequence, ranks, (shard_.context_rank + 1) % ranks).extent;
    add("context", name + ": send keys and values", ranks, times * (ranks - 1),
        of_token * (sequence - last) * sizes_.element);
    if (pass == Pass::backward_input)
      add("context", name + ": send their gradients", ranks, times * ranks,
          of_token * sequence * sizes_.accumulate);
  }
  void tensor(const std::string& what, std::int64_t operations, Bytes bytes_each) {
    add("tensor", what, shard_.tensor_size, operations, operations * bytes_each);
  }
  /// Adds to the row of this axis and message. A new row follows the other rows of its axis.
  void add(std::string_view axis, const std::string& what, std::int64_t group,
           std::int64_t operations, Bytes bytes) {
    if (group == 1 || operations == 0) return;
    auto row = std::ranges::find_if(
        rows_, [&](const TrafficRow& r) { return r.axis == axis && r.what == what; });
    if (row == rows_.end()) {
      const auto last = std::find_if(rows_.rbegin(), rows_.rend(),
                                     [&](const TrafficRow& r) { return r.axis == axis; });
      row =
          rows_.insert(last == rows_.rend() ? rows_.end() : last.base(), {std::string(axis), what});
    }
    row->operations += parallel_.workers_per_rank() * operations;  // for all workers
    row->bytes += parallel_.workers_per_rank() * bytes;
  }

  const deck::Config& config_;
  const Machine& machine_;
  const deck::ParallelConfig& parallel_;
  std::int64_t trust_norms_;
  Bytes maxima_;  ///< bytes of the maxima of all fp8 tensors
  const Architecture& architecture_;
  architecture::TrainingObjective objective_;
  std::vector<architecture::BlockProgram> programs_;  ///< by kind of layer
  const Shard& shard_;
  TypedSizes sizes_;
  std::vector<RankArray> arrays_;
  std::int64_t micro_batches_;
  Bytes tokens_bytes_;  ///< bytes of [T, D]
  Bytes slice_bytes_;   ///< bytes of this tensor rank's rows of [T, D]
  std::vector<TrafficRow> rows_;
};

}  // namespace

std::vector<TrafficRow> step_traffic(const deck::Config& config, const Architecture& architecture,
                                     const Shard& shard, bool split_backward,
                                     const Machine& machine) {
  Counter counter(config, architecture, shard, split_backward, machine);
  counter.layers();
  counter.ends();
  counter.replicated_gradients();
  counter.boundaries();
  counter.shared_layers();
  counter.shared_heads();
  if (!config.parallel.has_servers()) {
    counter.data();
    counter.tied();
    counter.norm();
  }
  std::vector<TrafficRow> rows = counter.take();
  if (config.parallel.has_servers())
    rows.push_back(worker_messages(config, architecture, shard, machine));
  return rows;
}

std::vector<TrafficRow> per_axis(const std::vector<TrafficRow>& rows) {
  std::vector<TrafficRow> sums;
  for (const TrafficRow& row : rows) {
    if (sums.empty() || sums.back().axis != row.axis) sums.push_back({row.axis, "", 0, 0});
    sums.back().operations += row.operations;
    sums.back().bytes += row.bytes;
  }
  return sums;
}

Bytes total(const std::vector<TrafficRow>& rows) {
  Bytes sum = 0;
  for (const TrafficRow& row : rows) sum += row.bytes;
  return sum;
}

namespace {

using schedule::Op;

/// Blocks whose weights a pass reads, in order (architecture::block_of).
std::vector<std::int64_t> blocks_read(const schedule::Instr& instr,
                                      const architecture::Shard& shard,
                                      const architecture::Architecture& architecture,
                                      std::span<const architecture::BlockProgram> programs) {
  const layout::Slice own = shard.stage_layers[static_cast<std::size_t>(instr.stage)];
  const bool head = instr.stage == shard.last_stage();
  std::vector<std::int64_t> blocks;
  const std::int64_t first = architecture.first_with_backward(own);
  const auto add_reversed = [&](const auto& reads) {
    for (std::int64_t l = own.end(); l-- > first;)
      if (reads(programs[architecture.kind_of(l)]))
        blocks.push_back(architecture::block_of_layer(l));
  };
  if (instr.op == Op::forward) {
    if (instr.stage == 0) blocks.push_back(0);
    for (std::int64_t l = own.offset; l < own.end(); ++l)
      blocks.push_back(architecture::block_of_layer(l));
    if (head) blocks.push_back(architecture.head_block());
  }
  if (instr.op == Op::backward || instr.op == Op::backward_input) {
    if (head) blocks.push_back(architecture.head_block());
    add_reversed([](const architecture::BlockProgram&) { return true; });
  }
  // In a program with split passes, a whole backward pass runs as its two halves.
  if (instr.op == Op::backward_weight ||
      (instr.op == Op::backward && programs.front().split_backward))
    add_reversed([](const architecture::BlockProgram& program) {
      return architecture::reads_weights(program.backward_weight);
    });
  return blocks;
}

}  // namespace

std::vector<std::int64_t> unit_gathers(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard,
                                       const architecture::Arrangement& weights,
                                       std::span<const architecture::BlockProgram> programs,
                                       const Machine& machine) {
  if (!weights.has_windows()) return {};
  std::vector<std::int64_t> counts(weights.units().size());
  architecture::WindowTurns turns(weights);
  const schedule::Program program = step_program(config, machine);
  const Rank rank = program.layout.rank_of(shard.stages.front());
  for (const schedule::Instr& instr : program.ranks[static_cast<std::size_t>(rank)]) {
    if (!schedule::is_pass(instr.op)) continue;
    for (const std::int64_t read : blocks_read(instr, shard, architecture, programs)) {
      const int unit = weights.unit_of(read);
      if (unit < 0 || turns.holds(unit)) continue;
      turns.take(unit);
      ++counts[static_cast<std::size_t>(unit)];
    }
  }
  return counts;
}

}  // namespace trireme::plan
