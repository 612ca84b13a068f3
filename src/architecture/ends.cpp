// The embedding and the head as lists of operations, for all models: tables, head layers and losses
// are properties of a model.
#include <trireme/architecture/ends.hpp>

#include <trireme/architecture/builder.hpp>
#include <trireme/architecture/frozen.hpp>
#include <trireme/architecture/objective.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

using deck::ModelConfig;

/// Logits of a pair's two classes.
constexpr Columns two = fixed_columns("2", 2);
/// Maximum, sum of exponentials and the target's logit; the same three values for each tensor
/// rank's part of the vocabulary.
constexpr Columns softmax = fixed_columns("3", 3);
constexpr Columns softmax_parts{"3 P", {Columns::Part{{3, Divide::ranks}}}};

class EndBuilder : public Builder {
 public:
  explicit EndBuilder(const ModelConfig& model, HeadGradient gradient = HeadGradient::with_losses)
      : Builder(model), gradient_(gradient) {}

  BlockDescription take() {
    BlockDescription part = Builder::take();
    mark_frozen(part, m_);
    return part;
  }

  Columns vocabulary() const { return vocabulary_columns(m_.vocabulary); }

  int field(const char* name, Rows rows) {
    return tensor(name, rows, Columns(), Numbers::index, Home::batch);
  }
  int scratch(std::string name, Rows rows, Columns columns, Numbers numbers = Numbers::compute,
              int stored_in = -1) {
    return tensor(std::move(name), rows, columns, numbers, Home::scratch, stored_in);
  }
  /// Adds a tensor that the head's backward pass reads.
  int kept(std::string name, Rows rows, Columns columns) {
    return tensor(std::move(name), rows, columns, Numbers::compute,
                  later() ? Home::slot : Home::scratch);
  }
  /// Adds a tensor for the gradient of `x`: in the slot if it is `kept`, otherwise scratch in the
  /// memory of `x`, if element sizes are equal.
  void gradient(std::string name, Rows rows, Columns columns, int x, bool kept) {
    tensor(std::move(name), rows, columns, Numbers::compute, kept ? Home::slot : Home::scratch,
           kept ? -1 : x);
  }
  bool later() const { return gradient_ != HeadGradient::with_losses; }

  /// Adds the table [buckets, H] of biases of relative positions of one stack of layers.
  void relative_table(bool encoder) {
    const char* const name = encoder ? "encoder.relative_bias" : "relative_bias";
    Operation op{OperationKind::table, name, {}, relative_bias(encoder)};
    ArraySpec table = matrix(name, {m_.relative_buckets, m_.heads}, 1);
    table.decay = false;
    op.arrays = {std::move(table)};
    add(std::move(op));
  }

  void look_up(const char* name, int ids, int x, ArraySpec table) {
    Operation op{OperationKind::embedding, name, {ids}, x};
    if (table.tensor_cut() != nullptr) op.cut = Cut::inputs;
    op.arrays = {std::move(table)};
    add(std::move(op));
  }

  /// memory = patches of the pixels · Wᵀ + position, with the class token in the first row of each
  /// image (Dosovitskiy et al. 2020, arXiv 2010.11929, eq. 1).
  void patches(int pixels) {
    const deck::VisionConfig& v = m_.vision;
    const int memory = value(ModelValue::source, Rows::source_own, fixed_columns("Dv", v.hidden));
    const int work = scratch("patches", Rows::source_own, fixed_columns("3 p²", v.patch_values()));
    Operation op{OperationKind::patches, "vision.patch", {pixels}, memory};
    op.scratch = {work};
    op.arrays = {matrix(op.name, {v.hidden, 3, v.patch, v.patch}, -1)};
    if (v.has_patch_bias()) op.arrays.push_back(vector(op.name + "_bias", {v.hidden}, -1));
    add(std::move(op));
    look_up("vision.position", memory, memory, matrix("vision.position", {v.rows(), v.hidden}, -1));
    if (!v.has_class_token()) return;
    Operation token{OperationKind::class_token, "vision.class_token", {memory}, memory};
    token.arrays = {vector(token.name, {v.hidden}, -1, Initialisation::normal)};
    token.arrays.front().standard_deviation = weight_deviation;
    add(std::move(token));
  }

  int linear(const char* name, int x, int y, std::int64_t outputs) {
    Operation op{OperationKind::linear, name, {x}, y};
    op.arrays = {matrix(name, {outputs, m_.hidden}, -1), vector(op.name + "_bias", {outputs}, -1)};
    return add(std::move(op));
  }

  /// `suffix`: "" for the logits of the next token; "_2" for those of the second token, which use
  /// the same work memory.
  void logits(int y, int targets, std::int64_t term = 0, const std::string& suffix = "") {
    const bool first = suffix.empty();
    Operation op{OperationKind::logits,
                 "logits" + suffix,
                 {y},
                 scratch("logits" + suffix, Rows::logit_block, vocabulary(), Numbers::accumulate,
                         first ? -1 : find("logits"))};
    op.cut = Cut::outputs;
    op.gathers_again = later();
    op.arrays = {output_table()};
    op.arrays.front().tied = m_.tied_embeddings || !first;
    if (m_.predicts_masked_tokens()) op.arrays.push_back(vector("output.bias", {m_.vocabulary}, 0));
    const bool kept = gradient_ == HeadGradient::kept;
    gradient("dlogits" + suffix, kept ? Rows::targets : Rows::logit_block, vocabulary(),
             first ? op.output : find("dlogits"), kept);
    cross_entropy("cross entropy" + suffix, "", add(std::move(op)), targets, Cut::outputs, term,
                  suffix);
  }

  ArraySpec output_table() const {
    ArraySpec spec =
        table(m_.tied_embeddings ? "embedding.token" : "output.weight", m_.vocabulary, m_.hidden);
    spec.tied = m_.tied_embeddings;
    return spec;
  }

  /// Logits of a rank's part of a shared vocabulary. The softmax is kept for the table's gradient,
  /// unless the logits are recomputed (`again`).
  void shared_logits(bool again) {
    const auto numbers = [&](const char* name, Columns columns, Home home) {
      return tensor(name, Rows::targets, columns, Numbers::fp64, home);
    };
    const int y = tensor("y", Rows::tokens, hidden(), Numbers::compute, Home::slot);
    Operation op{OperationKind::logits,
                 "logits",
                 {y},
                 scratch("logits", Rows::logit_block, vocabulary(), Numbers::accumulate)};
    op.arrays = {output_table()};
    gradient("softmax", again ? Rows::logit_block : Rows::targets, vocabulary(), op.output, !again);
    numbers("own", softmax, Home::slot);
    numbers("merged", softmax, Home::slot);
    numbers("losses", Columns(), Home::scratch);
    numbers("statistics", softmax_parts, Home::scratch);
    scratch("dy", Rows::tokens, hidden());
    scratch("rows", Rows::tokens, hidden());
    tensor("tokens", Rows::tokens, Columns(), Numbers::index, Home::scratch);
    add(std::move(op));
  }

  void cross_entropy(std::string name, const std::string& prefix, int x, int targets, Cut cut,
                     std::int64_t term, const std::string& suffix = "") {
    const Rows rows = built_.tensors[static_cast<std::size_t>(x)].rows;
    const auto sums = [&](const char* what, Columns columns) {
      return scratch(prefix + what + suffix, rows, columns, Numbers::fp64,
                     suffix.empty() ? -1 : find(what));
    };
    Operation op{
        OperationKind::cross_entropy, std::move(name), {x, targets}, sums("losses", Columns())};
    op.cut = cut;
    op.term = term;
    op.saved = {sums("statistics", cut == Cut::none ? softmax : softmax_parts)};
    const bool again = cut != Cut::none && gradient_ == HeadGradient::again;
    op.saved.push_back(again ? tensor(prefix + "merged" + suffix, Rows::targets, softmax,
                                      Numbers::fp64, Home::slot)
                             : sums("merged", softmax));
    add(std::move(op));
  }

 private:
  int find(const std::string& name) const {
    return static_cast<int>(std::ranges::find(built_.tensors, name, &Tensor::name) -
                            built_.tensors.begin());
  }

  HeadGradient gradient_;
};

/// Suffix of the names of a module's tensors: "_2" for the module that predicts the second token.
std::string suffix_of(std::int64_t module) {
  return text("_", module + 2);
}

/// Removes the only field, the targets: with a shared vocabulary, all ranks read them
/// (describe_shared_logits()).
BlockDescription without_fields(BlockDescription part) {
  std::erase_if(part.tensors, [](const Tensor& t) { return t.home == Home::batch; });
  for (Operation& op : part.operations) {
    for (int& t : op.inputs) --t;
    --op.output;
    for (int& t : op.saved) --t;
  }
  --part.output;
  return part;
}

}  // namespace

/// x = dropout(scale token[tokens] + position + segment[segments]); post-norm models have this
/// dropout in the first layer. With an encoder, also memory = dropout(token[source]). For each
/// module that predicts a further token, the value of the module = scale token[its tokens].
BlockDescription describe_embedding(const ModelConfig& m) {
  EndBuilder b(m);
  const int tokens = b.field("tokens", Rows::tokens);
  const int segments = m.predicts_masked_tokens() ? b.field("segments", Rows::tokens) : -1;
  const int source = m.encoder.present() ? b.field("source", Rows::source_tokens) : -1;
  const int pixels =
      m.vision.present() ? b.field(std::string(pixels_field).c_str(), Rows::pixel_words) : -1;
  std::vector<int> further;
  for (std::int64_t module = 0; module < m.modules(); ++module)
    further.push_back(b.field(("tokens" + suffix_of(module)).c_str(), Rows::tokens));
  const int x = b.tensor("x", Rows::own, b.hidden());
  b.tensor("dx", Rows::own, b.hidden(), Numbers::compute, Home::split);
  b.look_up("embedding", tokens, x, table("embedding.token", m.vocabulary, m.hidden));
  if (source >= 0) {
    const int memory = b.value(ModelValue::source, Rows::source_own, b.hidden());
    ArraySpec same = table("embedding.token", m.vocabulary, m.hidden);
    same.tied = true;
    b.look_up("source embedding", source, memory, std::move(same));
    b.add({OperationKind::dropout, "source_dropout", {memory}, memory});
  }
  if (pixels >= 0) b.patches(pixels);
  for (std::int64_t module = 0; module < m.modules(); ++module) {
    const int value = b.value_of_module(module);
    ArraySpec same = table("embedding.token", m.vocabulary, m.hidden);
    same.tied = true;
    b.look_up("further embedding", further[static_cast<std::size_t>(module)], value,
              std::move(same));
  }
  if (m.has_relative_positions()) {
    b.relative_table(true);
    b.relative_table(false);
  }
  if (m.positions == Positions::learned)
    b.look_up("positions", x, x, matrix("embedding.position", {m.sequence, m.hidden}, -1));
  if (segments >= 0)
    b.look_up("segments", segments, x, matrix("embedding.segment", {2, m.hidden}, -1));
  if (m.norm_placement != NormPlacement::post)
    b.add({OperationKind::dropout, "embedding_dropout", {x}, x});
  return b.take();
}

BlockDescription without_vocabulary(BlockDescription embedding) {
  std::erase_if(embedding.operations, [](const Operation& op) {
    return op.kind == OperationKind::embedding && op.arrays.front().of_vocabulary();
  });
  return embedding;
}

BlockDescription describe_shared_logits(const ModelConfig& m, HeadGradient gradient) {
  EndBuilder b(m, gradient);
  b.field("targets", Rows::targets);
  b.shared_logits(computes_again(gradient));
  return b.take();
}

/// y = norm(x);  next token     loss = cross entropy(output y)
///               masked tokens  loss = cross entropy(output norm(gelu(dense y)) + bias)
///               pairs          pair_loss = cross entropy(output tanh(dense y) of first tokens)
/// (Devlin et al. 2019, arXiv 1810.04805, section 3.1). With modules that predict further tokens,
/// the values of the modules hold the results of the model and of all modules but the last, and x
/// that of the last; each module has a norm of its own, and all have the same table.
BlockDescription describe_head(const ModelConfig& m, HeadGradient gradient) {
  EndBuilder b(m, gradient);
  const int targets = b.field("targets", Rows::targets);
  const int rows = m.predicts_masked_tokens() ? b.field("rows", Rows::head_rows) : -1;
  const int pairs = m.has_sentence_head() ? b.field("pairs", Rows::pairs) : -1;
  std::vector<int> further;
  for (std::int64_t module = 0; module < m.modules(); ++module)
    further.push_back(b.field(("targets" + suffix_of(module)).c_str(), Rows::targets));
  const int x = b.tensor("x", Rows::own, b.hidden(), Numbers::compute, Home::slot);
  const int y = b.tensor("y", Rows::own, b.hidden(), Numbers::compute, Home::slot);
  const auto result = [&](std::int64_t module) {  // −1: of the model
    return module + 1 < m.modules() ? b.value_of_module(module + 1) : x;
  };
  b.norm("final_norm", result(-1), y, m.norm);
  std::vector<int> normed;
  for (std::int64_t module = 0; module < m.modules(); ++module) {
    normed.push_back(
        b.tensor("y" + suffix_of(module), Rows::own, b.hidden(), Numbers::compute, Home::slot));
    const std::string name = text(module_prefix, module + 2, ".final_norm");
    b.norm(name.c_str(), result(module), normed.back(), m.norm);
  }
  if (shares_logits(gradient)) return without_fields(b.take());
  if (rows < 0) {
    b.logits(y, targets);
    for (std::size_t module = 0; module < further.size(); ++module)
      b.logits(normed[module], further[module], static_cast<std::int64_t>(module) + 1,
               suffix_of(static_cast<std::int64_t>(module)));
    return b.take();
  }
  Operation pick{
      OperationKind::pick, "head's rows", {y, rows}, b.kept("picked", Rows::head_rows, b.hidden())};
  const int picked = b.add(std::move(pick));
  const int dense =
      b.linear("masked_head.dense", picked, b.kept("dense", Rows::targets, b.hidden()), m.hidden);
  const int activated = b.add(
      {OperationKind::activation, "gelu", {dense}, b.kept("activated", Rows::targets, b.hidden())});
  b.logits(b.norm("masked_head.norm", activated, b.kept("normed", Rows::targets, b.hidden()),
                  NormKind::layer),
           targets);
  if (pairs < 0) return b.take();
  const int pooled =
      b.linear("sentence_head.dense", picked, b.kept("pooled", Rows::pairs, b.hidden()), m.hidden);
  b.scratch("dpooled", Rows::pairs, b.hidden());
  b.add({OperationKind::activation, "tanh", {pooled}, pooled});
  const int scores = b.linear("sentence_head.output", pooled,
                              b.scratch("scores", Rows::pairs, two, Numbers::accumulate), 2);
  b.gradient("dscores", Rows::pairs, two, scores, b.later());
  b.cross_entropy("cross entropy of pairs", "pair_", scores, pairs, Cut::none, 1);
  return b.take();
}

HeadGradient head_gradient(const deck::ParallelConfig& p) {
  const bool shared = p.shares_vocabulary();
  if (!shared && (!schedule::traits_of(p.schedule).forward_first || p.pipeline == 1))
    return HeadGradient::with_losses;
  const bool chosen = p.recompute == Recompute::automatic &&
                      std::ranges::find(p.recomputed, logits_name) != p.recomputed.end();
  const bool again = p.recompute == Recompute::full || chosen;
  if (shared) return again ? HeadGradient::shared_again : HeadGradient::shared;
  return again ? HeadGradient::again : HeadGradient::kept;
}

bool shares_memory(const BlockDescription& part, const Tensor& t, Bytes element, Bytes accumulate) {
  return t.stored_in >= 0 &&
         bytes_of(t.numbers, element, accumulate) ==
             bytes_of(part.tensors[static_cast<std::size_t>(t.stored_in)].numbers, element,
                      accumulate);
}

Bytes bytes_at(Home home, const BlockDescription& part, const RankSizes& sizes, Bytes element,
               Bytes accumulate) {
  Bytes bytes = 0;
  for (const Tensor& t : part.tensors)
    if (t.home == home && !shares_memory(part, t, element, accumulate))
      bytes += bytes_of(t, sizes, element, accumulate);
  return bytes;
}

}  // namespace trireme::architecture
