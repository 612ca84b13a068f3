// The transformer layer, for all families: norm, positions, activation, biases and order are
// properties of the model (deck/families.cpp).
#include <trireme/architecture/adapter.hpp>
#include <trireme/architecture/builder.hpp>
#include <trireme/architecture/frozen.hpp>
#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace trireme::architecture {
namespace {

using deck::ModelConfig;

class LayerBuilder : public Builder {
 public:
  LayerBuilder(const ModelConfig& model, std::int64_t layer)
      : Builder(model),
        encoder_(model.in_encoder(layer)),
        window_(model.window_of(layer)),
        groups_(model.heads / model.heads_per_group()),
        residual_deviation_(
            model.norm_placement == NormPlacement::post
                ? weight_deviation
                : weight_deviation /
                      std::sqrt(2.0 * static_cast<double>(encoder_ ? model.encoder_layers()
                                                                   : model.layers))) {
    built_.stream = encoder_ ? Stream::source : Stream::tokens;
  }

  /// `unit` columns for each head of queries.
  Columns all_queries(std::string_view symbol, std::int64_t unit) const {
    return {symbol, {Columns::Part{{m_.heads, Divide::evenly}, unit}}};
  }
  /// `unit` columns for each head of queries, then of keys, and then of values if `with_values`.
  Columns all_heads(std::string_view symbol, std::int64_t unit, bool with_values = false) const {
    Columns columns = all_queries(symbol, unit);
    columns.parts[1] = {{groups_, Divide::groups, m_.heads_per_group()}, unit};
    if (with_values) columns.parts[2] = columns.parts[1];
    return columns;
  }
  Columns query_key() const { return all_heads("(H + Hkv) K", m_.head_size()); }

  int norm(const char* name, const char* output, int x) {
    return Builder::norm(name, x, tensor(output, Rows::own, hidden()), m_.norm);
  }

  /// A norm whose result is the layer's output.
  int last_norm(const char* name, const char* output, int x) {
    const int y = norm(name, output, x);
    built_.operations.back().weights_with_input = true;
    return y;
  }

  /// M [norm(h) ; norm(e)], where h is the result of the previous block, and e the embeddings of
  /// the tokens that precede the predicted ones, as two products (DeepSeek-AI 2024, arXiv
  /// 2412.19437, eq. 21). The value of the module then holds h, for the head.
  int merged_embeddings(int h, std::int64_t module) {
    const int held = value_of_module(module);
    const int e = tensor("embedded", Rows::own, hidden());
    Operation swap{OperationKind::swap, "swap", {h, held}, e};
    swap.saved = {held};
    add(std::move(swap));
    const auto product = [&](const char* normed, const char* name, const char* output, int x) {
      return latent_rows(norm(text(name, "_norm").c_str(), normed, x), name, output, "D",
                         m_.hidden);
    };
    const int z = product("normed_hidden", "merge.hidden", "merged", h);
    return add({OperationKind::add,
                "merge.sum",
                {z, product("normed_embedded", "merge.embedding", "merged_embedded", e)},
                z});
  }

  int dropout_of_embedding(int x) {
    return add({OperationKind::dropout, "embedding_dropout", {x}, x});
  }

  /// One product for queries, keys and values.
  int query_key_value(int y) {
    Operation op{OperationKind::linear,
                 "attention.query",
                 {y},
                 tensor("qkv", Rows::tokens, all_heads("(H + 2 Hkv) K", m_.head_size(), true))};
    op.cut = Cut::outputs;
    const std::int64_t K = m_.head_size();
    op.arrays = {matrix("attention.query", {m_.heads, K, m_.hidden}, 0),
                 matrix("attention.key_value", {2, groups_, K, m_.hidden}, 1)};
    if (m_.biases != Biases::none) {
      op.arrays.push_back(vector("attention.query_bias", {m_.heads, K}, 0));
      op.arrays.push_back(vector("attention.key_value_bias", {2, groups_, K}, 1));
    }
    for (std::size_t i = 1; i < op.arrays.size(); i += 2) {
      op.arrays[i].follows_previous = true;
      op.arrays[i].cuts = by_groups(op.arrays[i].cuts.front().dimension);
    }
    return add(std::move(op));
  }

  /// Queries, keys and values of latent attention, as one tensor: keys and values, and with
  /// query_rank queries, are products of normed rows that are narrower than the residual stream.
  /// The last columns of a key are a product of y and equal in all heads; values end with zeros
  /// (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1).
  int latent_query_key_value(int y) {
    const std::int64_t D = m_.hidden, H = m_.heads, K = m_.head_size();
    const std::int64_t C = m_.rotary_columns(), V = m_.value_columns();
    const auto of_heads = [&](int x, const char* name, const char* output, std::int64_t columns,
                              const char* symbol, std::int64_t inputs) {
      Operation op{OperationKind::linear,
                   name,
                   {x},
                   tensor(output, Rows::tokens, all_queries(symbol, columns))};
      op.cut = Cut::outputs;
      op.arrays = {matrix(name, {H, columns, inputs}, 0)};
      return add(std::move(op));
    };
    int q = y;
    if (m_.query_rank > 0) {
      q = latent_rows(y, "attention.query_down", "query_rows", "Rq", m_.query_rank);
      q = latent_norm(q, "attention.query_down_norm", "normed_query_rows", "Rq", m_.query_rank);
      q = of_heads(q, "attention.query_up", "q", K, "H K", m_.query_rank);
    } else {
      q = of_heads(y, "attention.query", "q", K, "H K", D);
    }
    const std::int64_t rank = m_.key_value_rank;
    int kv = latent_rows(y, "attention.key_value_down", "key_value_rows", "Rkv", rank);
    kv = latent_norm(kv, "attention.key_value_norm", "normed_key_value_rows", "Rkv", rank);
    kv = of_heads(kv, "attention.key_value_up", "kv", K - C + V, "H (K − C + V)", rank);
    const int k = latent_rows(y, "attention.key_rotary", "common_keys", "C", C);
    Operation join{OperationKind::join_heads,
                   "attention.heads",
                   {q, kv, k},
                   tensor("qkv", Rows::tokens, all_heads("(H + 2 Hkv) K", K, true))};
    join.scratch = {tensor("all_common_keys", Rows::tokens, fixed_columns("C", C))};
    return add(std::move(join));
  }

  /// The columns of attention's output that are values.
  int values(int o) {
    const std::int64_t V = m_.value_columns();
    if (V == m_.head_size()) return o;
    return add({OperationKind::take_values,
                "attention.values",
                {o},
                tensor("v", Rows::tokens, all_queries("H V", V))});
  }

  void query_key_norm(int qkv) {
    switch (m_.query_key_norm) {
      case QueryKeyNorm::none:
        return;
      case QueryKeyNorm::head:
        head_norm(qkv);
        return;
      case QueryKeyNorm::width:
        width_norm(qkv);
        return;
    }
  }

  int head_norm(int qkv) {
    Operation op{OperationKind::head_norm, "attention", {qkv}, qkv};
    op.changed = query_key();
    op.saved = {tensor("raw_query_key", Rows::tokens, query_key()),
                tensor("head_inverse", Rows::tokens, all_heads("H + Hkv", 1), Numbers::accumulate)};
    for (const char* name : {"attention.query_norm.gain", "attention.key_norm.gain"}) {
      op.arrays.push_back(vector(name, {m_.head_size()}, -1, gain_initialisation(m_)));
      op.arrays.back().partial_gradient = true;
    }
    return add(std::move(op));
  }

  /// The norm of all queries of a token, and of all its keys. Saves the factors [2, T] of queries
  /// and keys.
  int width_norm(int qkv) {
    Operation op{OperationKind::width_norm, "attention.query_key_norm", {qkv}, qkv};
    op.changed = query_key();
    op.saved = {tensor("raw_query_key", Rows::tokens, query_key()),
                tensor("width_inverse", Rows::tokens, fixed_columns("2", 2), Numbers::accumulate)};
    const std::int64_t K = m_.head_size();
    op.arrays = {vector("attention.query_norm.gain", {m_.heads, K}, 0, gain_initialisation(m_)),
                 vector("attention.key_norm.gain", {groups_, K}, 0, gain_initialisation(m_))};
    op.arrays.back().cuts = by_groups(0);
    return add(std::move(op));
  }

  int rotary(int qkv) {
    Operation op{OperationKind::rotary, "rotary", {qkv}, qkv};
    op.changed = query_key();
    op.window = window_;
    return add(std::move(op));
  }

  int attention(int qkv) {
    Operation op{OperationKind::attention,
                 "attention",
                 {qkv},
                 tensor("o", Rows::tokens, all_queries("H K", m_.head_size()))};
    op.window = window_;
    op.causal = m_.causal() && !encoder_;
    op.keys = encoder_ ? m_.encoder.sequence : m_.sequence;
    op.key_value_columns = m_.heads * (m_.head_size() + m_.value_columns());
    op.saved = {tensor("logsumexp", Rows::tokens, all_queries("H", 1), Numbers::accumulate)};
    if (m_.has_relative_positions()) op.inputs.push_back(relative_bias(encoder_));
    if (!m_.attention_sinks) return add(std::move(op));
    op.arrays = {vector("attention.sinks", {m_.heads}, 0)};
    op.scratch = {tensor("sink_terms", Rows::tokens, all_queries("H", 1), Numbers::accumulate)};
    return add(std::move(op));
  }

  int attention_output(int o) {
    return from_parts(values(o), "attention.output", "z1",
                      {m_.hidden, m_.heads, m_.value_columns()});
  }

  /// Attention of the decoder's tokens to the encoder's result.
  int cross_attention(int y) {
    const std::int64_t K = m_.head_size();
    const int memory = value(ModelValue::source, Rows::source_own, hidden());
    const auto product = [&](int x, const char* name, int output, ArraySpec array, ArraySpec bias) {
      Operation op{OperationKind::linear, name, {x}, output};
      op.cut = Cut::outputs;
      op.arrays = {std::move(array)};
      if (m_.biases != Biases::none) op.arrays.push_back(std::move(bias));
      return add(std::move(op));
    };
    ArraySpec keys = matrix("cross_attention.key_value", {2, groups_, K, m_.hidden}, 1);
    ArraySpec key_bias = vector("cross_attention.key_value_bias", {2, groups_, K}, 1);
    keys.cuts = key_bias.cuts = by_groups(1);
    Columns key_values = all_heads("2 Hkv K", K);
    key_values.parts[0] = key_values.parts[1];
    const int q =
        product(y, "cross_attention.query", tensor("cross_q", Rows::tokens, all_queries("H K", K)),
                matrix("cross_attention.query", {m_.heads, K, m_.hidden}, 0),
                vector("cross_attention.query_bias", {m_.heads, K}, 0));
    const int kv = product(memory, "cross_attention.key_value",
                           tensor("cross_kv", Rows::source_tokens, key_values), std::move(keys),
                           std::move(key_bias));
    Operation op{OperationKind::attention,
                 "cross_attention",
                 {q, kv},
                 tensor("cross_o", Rows::tokens, all_queries("H K", K))};
    op.causal = false;
    op.crosses = true;
    op.keys = m_.encoder.sequence;
    op.key_value_columns = 2 * m_.heads * K;
    op.saved = {tensor("cross_logsumexp", Rows::tokens, all_queries("H", 1), Numbers::accumulate)};
    return from_parts(add(std::move(op)), "cross_attention.output", "zc", {m_.hidden, m_.heads, K});
  }

  int up(int y) {
    return inner_product(y, m_.gated() ? "feed_forward.gate_up" : "feed_forward.up", "h", "F'",
                         m_.feed_forward);
  }

  int activation(int h) {
    return add({OperationKind::activation,
                std::string(name_of(m_.activation)),
                {h},
                tensor("g", Rows::tokens, divided_columns("F", m_.feed_forward))});
  }

  /// The results of a token's experts, summed with the router's weights (Shazeer et al. 2017, arXiv
  /// 1701.06538). The weights are applied before the last product, so that its output need not be
  /// kept; its bias is weighed, too. The tensor axis splits the experts: the choices of all tokens
  /// are on every rank, which computes the rows of its own experts and a partial sum for every
  /// token. With [parallel] expert, replicas divide the experts further: each rank sends its tokens
  /// to the replicas with their experts, and receives partial sums.
  int experts(int y) {
    const std::int64_t E = m_.experts.number, F = m_.experts.feed_forward, k = m_.experts.active;
    const Rows routed = rows_of_experts(Rows::routed, m_),
               received = rows_of_experts(Rows::received, m_),
               sent = rows_of_experts(Rows::sent, m_);
    const Columns scores = fixed_columns("E", E), weights_and_experts = fixed_columns("2 k", 2 * k);
    Operation router{OperationKind::router,
                     "experts.router",
                     {y},
                     tensor("router_logits", Rows::own, scores, Numbers::accumulate)};
    tensor("drouter_logits", Rows::own, scores);
    const bool biased = m_.biases == Biases::all;
    router.arrays = {matrix(router.name, {m_.experts.number, m_.hidden}, -1)};
    if (biased) router.arrays.push_back(vector("experts.router_bias", {m_.experts.number}, -1));
    Operation chosen{OperationKind::choice,
                     "experts.choice",
                     {add(std::move(router))},
                     tensor("routes", received, weights_and_experts, Numbers::accumulate)};
    if (m_.experts.choice_bias) {
      ArraySpec& bias = chosen.arrays.emplace_back(vector("experts.bias", {E}, -1));
      bias.constant = m_.experts.bias_rate == 0;
      bias.counts_tokens = bias.partial_gradient = !bias.constant;
    }
    if (m_.experts.keeps_load()) {
      ArraySpec& load =
          chosen.arrays.emplace_back(vector("experts.load", {E}, -1, Initialisation::ones));
      load.counts_tokens = load.partial_gradient = load.is_load = true;
    }
    chosen.saved = {
        tensor("router_scores", Rows::own, scores, Numbers::accumulate),
        tensor("routed_order", received, fixed_columns("k", k), Numbers::index),
        tensor("routed_bounds", rows_of_experts(Rows::bounds, m_), Columns(), Numbers::index),
        tensor("sent_tokens", sent, Columns(), Numbers::index),
        tensor("sent_bounds", Rows::copy_bounds, Columns(), Numbers::index),
        tensor("token_routes", Rows::exchanged, weights_and_experts, Numbers::accumulate)};
    chosen.scratch = {
        tensor("own_routes", Rows::own, weights_and_experts, Numbers::accumulate),
        tensor("score_gradients", Rows::own, scores, Numbers::accumulate),
        tensor("sent_routes", sent, weights_and_experts, Numbers::accumulate),
        tensor("token_gradients", Rows::exchanged, weights_and_experts, Numbers::accumulate),
        tensor("row_losses",
               m_.experts.balances() || m_.experts.limits_logits() ? Rows::own : Rows::none,
               Columns(), Numbers::fp64),
        tensor("expert_counts",
               m_.experts.balance == ExpertBalance::sequence ? Rows::samples : Rows::none, scores,
               Numbers::accumulate),
        tensor("chunk_counts", m_.experts.drops(m_.sequence) ? Rows::chunks : Rows::none, scores,
               Numbers::accumulate)};
    if (m_.experts.limits_logits())
      chosen.saved.push_back(tensor("router_logsumexp", Rows::own, Columns(), Numbers::accumulate));
    const int order = chosen.saved[choice::order], bounds = chosen.saved[choice::bounds];
    const int tokens = chosen.saved[choice::sent], copies = chosen.saved[choice::copy_bounds];
    const int routes = add(std::move(chosen));

    if (m_.experts.has_rounds())
      return with_shared_expert(rounds(y, {routes, order, bounds, tokens, copies}), y);
    const std::vector<int> scratch{tensor("expert_rows", received, hidden()),
                                   tensor("expert_sums", received, hidden(), Numbers::accumulate),
                                   tensor("sent_rows", sent, hidden()),
                                   tensor("received_rows", Rows::received_copies, hidden())};
    const auto product = [&](const char* name, int x, int output, Cut cut, ArraySpec weights) {
      Operation op{OperationKind::expert_product, name, {x, order, bounds, tokens, copies}, output};
      op.cut = cut;
      op.arrays = {std::move(weights)};
      if (biased) {
        std::vector<std::int64_t> shape = op.arrays.front().shape;
        shape.pop_back();
        op.arrays.push_back(expert_bias(op.name + "_bias", std::move(shape), cut));
        if (cut == Cut::inputs) op.inputs.push_back(routes);
      }
      op.scratch = scratch;
      op.share = static_cast<double>(k) / static_cast<double>(E);
      return add(std::move(op));
    };
    const int inner = tensor("expert_h", routed, inner_of_experts());
    const int h = m_.gated() ? product("experts.gate_up", y, inner, Cut::outputs,
                                       expert_matrix("experts.gate_up", {E, 2, F, m_.hidden}, 2))
                             : product("experts.up", y, inner, Cut::outputs,
                                       expert_matrix("experts.up", {E, F, m_.hidden}, 1));
    const int g = add({OperationKind::expert_activation,
                       std::string(name_of(m_.activation)),
                       {h, routes, order, bounds},
                       tensor("expert_g", routed, outer_of_experts())});
    const int z = product("experts.down", g, tensor("z2", Rows::own, hidden()), Cut::inputs,
                          expert_matrix("experts.down", {E, m_.hidden, F}, 2, residual_deviation_));
    return with_shared_expert(z, y);
  }

  /// The results of the router.
  struct Routes {
    int routes, order, bounds, sent, copies;
  };
  /// The same in rounds of a bounded number of rows. Two further operations send the rows of tokens
  /// to the experts and back.
  int rounds(int y, const Routes& r) {
    const std::int64_t E = m_.experts.number, F = m_.experts.feed_forward;
    const Rows received = rows_of_experts(Rows::received, m_),
               round = rows_of_experts(Rows::round, m_);
    const int sent_rows = tensor("sent_rows", rows_of_experts(Rows::sent, m_), hidden());
    const int sums = tensor("token_sums", Rows::tokens, hidden(), Numbers::accumulate);
    Operation dispatch{OperationKind::dispatch,
                       "experts.dispatch",
                       {y, r.sent, r.copies},
                       tensor("expert_x", received, hidden())};
    dispatch.cut = Cut::outputs;
    dispatch.scratch = {sent_rows, sums};
    Operation op{OperationKind::expert_rounds,
                 "experts.rounds",
                 {add(std::move(dispatch)), r.routes, r.order, r.bounds, r.copies},
                 tensor("expert_z", received, hidden())};
    const auto array = [&](ArraySpec weights, Cut cut) {
      std::vector<std::int64_t> shape = weights.shape;
      shape.pop_back();
      op.arrays.push_back(std::move(weights));
      if (m_.biases == Biases::all)
        op.arrays.push_back(expert_bias(op.arrays.back().name + "_bias", shape, cut));
    };
    array(m_.gated() ? expert_matrix("experts.gate_up", {E, 2, F, m_.hidden}, 2)
                     : expert_matrix("experts.up", {E, F, m_.hidden}, 1),
          Cut::outputs);
    array(expert_matrix("experts.down", {E, m_.hidden, F}, 2, residual_deviation_), Cut::inputs);
    op.share = static_cast<double>(m_.experts.active) / static_cast<double>(E);
    const Columns inner = inner_of_experts(), outer = outer_of_experts();
    op.scratch = {tensor("round_rows", round, hidden()),
                  tensor("round_h", round, inner),
                  tensor("round_g", round, outer),
                  tensor("round_dh", round, inner),
                  tensor("round_dg", round, outer),
                  tensor("expert_sums", received, hidden(), Numbers::accumulate)};
    Operation combine{OperationKind::combine,
                      "experts.combine",
                      {add(std::move(op)), r.sent, r.copies},
                      tensor("z2", Rows::own, hidden())};
    combine.cut = Cut::inputs;
    combine.scratch = {sent_rows, sums};
    return add(std::move(combine));
  }

  int with_shared_expert(int z, int y) {
    return m_.experts.shares() ? add({OperationKind::add, "experts.sum", {z, shared_expert(y)}, z})
                               : z;
  }

  /// The result of the expert that all tokens use, times a sigmoid if `shared_gate` (Qwen Team
  /// 2024, "Qwen1.5-MoE"; DeepSeek-AI 2024, arXiv 2401.06066, section 3.2).
  int shared_expert(int y) {
    const std::int64_t F = m_.experts.shared_feed_forward;
    const int h = inner_product(y, m_.gated() ? "experts.shared_gate_up" : "experts.shared_up",
                                "shared_h", "Fs'", F);
    const int g = add({OperationKind::activation,
                       std::string(name_of(m_.activation)),
                       {h},
                       tensor("shared_g", Rows::tokens, divided_columns("Fs", F))});
    const int z = from_parts(g, "experts.shared_down", "shared_z", {m_.hidden, F});
    if (!m_.experts.shared_gate) return z;
    Operation logit{OperationKind::router,
                    "experts.shared_gate",
                    {y},
                    tensor("shared_logit", Rows::own, Columns(), Numbers::accumulate)};
    tensor("dshared_logit", Rows::own, Columns());
    logit.arrays = {matrix(logit.name, {1, m_.hidden}, -1)};
    Operation gate{OperationKind::gate, "experts.gate", {z, add(std::move(logit))}, z};
    gate.saved = {tensor("raw_shared_z", Rows::own, hidden())};
    return add(std::move(gate));
  }

  /// Rows of the model's tokens from the encoder's rows of images: down(gelu(up(y))) with biases
  /// (Liu et al. 2023, arXiv 2310.03744, section 3.4).
  int image_rows() {
    const std::int64_t D = m_.hidden, encoder = m_.vision.hidden;
    const int images = value(ModelValue::source, Rows::source_own, fixed_columns("Dv", encoder));
    const auto product = [&](const char* name, int x, int output, Cut cut,
                             std::vector<std::int64_t> shape) {
      Operation op{OperationKind::linear, name, {x}, output};
      op.cut = cut;
      const int divided = cut == Cut::outputs ? 0 : -1;
      op.arrays = {matrix(name, std::move(shape), cut == Cut::outputs ? 0 : 1),
                   vector(op.name + "_bias", {D}, divided)};
      return add(std::move(op));
    };
    const Columns inner = divided_columns("D'", D);
    const int h = product("up", images, tensor("image_h", Rows::source_tokens, inner), Cut::outputs,
                          {D, encoder});
    Operation gelu{OperationKind::activation,
                   std::string(name_of(Activation::gelu)),
                   {h},
                   tensor("image_g", Rows::source_tokens, inner)};
    gelu.gelu = Gelu::exact;
    return product("down", add(std::move(gelu)), tensor("image_z", Rows::source_own, hidden()),
                   Cut::inputs, {D, D});
  }

  /// Rows of the model's tokens from squares of patches: output(norm(mean)), without biases (Gemma
  /// Team 2025, arXiv 2503.19786, section 2.1). All tensor ranks compute all of these few rows.
  int pooled_image_rows() {
    const std::int64_t encoder = m_.vision.hidden;
    const Columns columns = fixed_columns("Dv", encoder);
    const int images = value(ModelValue::source, Rows::source_own, columns);
    const int means = add(
        {OperationKind::pool, "pool", {images}, tensor("image_means", Rows::projected, columns)});
    const int normed = tensor("image_y", Rows::projected, columns);
    Builder::norm("norm", means, normed, NormKind::rms);
    built_.operations.back().arrays.front().shape = {encoder};
    built_.operations.back().epsilon = m_.of_source().norm_epsilon;
    Operation op{
        OperationKind::linear, "output", {normed}, tensor("image_z", Rows::projected, hidden())};
    op.arrays = {matrix(op.name, {m_.hidden, encoder}, -1)};
    return add(std::move(op));
  }

  /// x with the rows of images in the places of their tokens.
  int splice(int x, int images) {
    const int rows =
        tensor(std::string(image_rows_field), Rows::tokens, Columns(), Numbers::index, Home::batch);
    return add(
        {OperationKind::splice, "splice", {x, images, rows}, tensor("out", Rows::own, hidden())});
  }

  int down(int g) { return from_parts(g, "feed_forward.down", "z2", {m_.hidden, m_.feed_forward}); }

  /// output = x + dropout(z). If a product computes z, z and the output share memory. The output of
  /// a norm has its own memory, because it may be recomputed after the addition.
  int residual(const char* output, int x, int z, std::uint32_t site) {
    Operation op{OperationKind::residual, output, {z, x}, tensor(output, Rows::own, hidden())};
    op.dropout_site = site;
    if (is_product(built_.operations.back()))
      built_.tensors[static_cast<std::size_t>(z)].stored_in = op.output;
    return add(std::move(op));
  }

 private:
  /// A matrix of all experts. `inner`: its dimension of inner columns.
  ArraySpec expert_matrix(const char* name, std::vector<std::int64_t> shape, int inner,
                          double deviation = weight_deviation) const {
    ArraySpec spec = matrix(name, std::move(shape), inner, deviation);
    spec.cuts = expert_cuts(inner);
    return spec;
  }
  /// A bias of all experts, for outputs or for sums over split inputs.
  ArraySpec expert_bias(std::string name, std::vector<std::int64_t> shape, Cut cut) const {
    const int inner = cut == Cut::outputs ? static_cast<int>(shape.size()) - 1 : -1;
    ArraySpec spec = vector(std::move(name), std::move(shape), inner);
    spec.cuts = expert_cuts(inner);
    spec.partial_gradient = m_.experts.split && inner < 0;
    return spec;
  }
  ArrayCuts expert_cuts(int inner) const {
    if (!m_.experts.split) return {{0, Divide::experts}};
    ArrayCuts cuts{{0, Divide::replicas}};
    if (inner >= 0) cuts.push_back({static_cast<std::int8_t>(inner), Divide::evenly});
    return cuts;
  }
  Columns inner_of_experts() const {
    const std::int64_t F = m_.experts.feed_forward;
    if (m_.experts.split) return divided_columns("Fe'", F, m_.gated() ? 2 : 1);
    return fixed_columns("Fe'", m_.gated() ? 2 * F : F);
  }
  Columns outer_of_experts() const {
    const std::int64_t F = m_.experts.feed_forward;
    return m_.experts.split ? divided_columns("Fe", F) : fixed_columns("Fe", F);
  }
  /// A dimension of heads of keys and values.
  ArrayCuts by_groups(int dimension) const {
    const std::int64_t group = m_.heads_per_group();
    check(group <= std::numeric_limits<std::int16_t>::max(), group,
          " heads of queries for each head of keys and values, expected fewer than 2^15");
    return {
        {static_cast<std::int8_t>(dimension), Divide::groups, static_cast<std::int16_t>(group)}};
  }
  /// A product of this rank's rows, whose weights every tensor rank has.
  int latent_rows(int y, const char* name, const char* output, const char* symbol,
                  std::int64_t columns) {
    Operation op{OperationKind::row_product,
                 name,
                 {y},
                 tensor(output, Rows::own, fixed_columns(symbol, columns))};
    op.arrays = {matrix(name, {columns, m_.hidden}, -1)};
    return add(std::move(op));
  }
  /// RMSNorm of such rows. transformers' DeepseekV3 does not change its epsilon.
  int latent_norm(int x, const char* name, const char* output, const char* symbol,
                  std::int64_t columns) {
    const int y = tensor(output, Rows::own, fixed_columns(symbol, columns));
    Builder::norm(name, x, y, NormKind::rms);
    Operation& op = built_.operations.back();
    op.arrays.front().shape = {columns};
    op.epsilon = 1e-6;
    return y;
  }
  /// h = y Wᵀ + bias for an activation with `inner` inputs, or with a gate 2 · `inner`.
  int inner_product(int y, const char* name, const char* output, std::string_view symbol,
                    std::int64_t inner) {
    const bool gated = m_.gated();
    Operation op{OperationKind::linear,
                 name,
                 {y},
                 tensor(output, Rows::tokens, divided_columns(symbol, inner, gated ? 2 : 1))};
    op.cut = Cut::outputs;
    std::vector<std::int64_t> shape{inner};
    if (gated) shape.insert(shape.begin(), 2);
    const int axis = gated ? 1 : 0;
    if (m_.biases == Biases::all) op.arrays = {vector(op.name + "_bias", shape, axis)};
    shape.push_back(m_.hidden);
    op.arrays.insert(op.arrays.begin(), matrix(op.name, std::move(shape), axis));
    return add(std::move(op));
  }

  /// A product whose inputs are split: its partial sums are reduced to this rank's rows.
  int from_parts(int x, const char* name, const char* output, std::vector<std::int64_t> shape) {
    Operation op{OperationKind::linear, name, {x}, tensor(output, Rows::own, hidden())};
    op.cut = Cut::inputs;
    op.arrays = {matrix(name, std::move(shape), 1, residual_deviation_)};
    if (m_.biases == Biases::all) op.arrays.push_back(vector(op.name + "_bias", {m_.hidden}, -1));
    return add(std::move(op));
  }

  bool encoder_;         ///< whether the layer belongs to the encoder
  std::int64_t window_;  ///< 0: full attention
  std::int64_t groups_;  ///< heads of keys and values
  /// Initial deviation of weights that add to the residual stream: Radford et al. 2019.
  double residual_deviation_;
};

}  // namespace

std::string prefix_of_layer(const ModelConfig& m, std::int64_t layer) {
  if (m.in_encoder(layer))
    return text(m.vision.present() ? "vision.layers." : "encoder.layers.", layer, ".");
  if (m.is_projector(layer)) return "projector.";
  const std::int64_t number = layer - m.first_decoder_layer();
  if (m.in_module(layer)) return text(module_prefix, number - m.layers + 2, ".");
  return text("layers.", number, ".");
}

namespace {

/// out = x, with projected rows of images in the places of their tokens.
BlockDescription describe_projector(const ModelConfig& m) {
  LayerBuilder layer(m, m.vision.layers);
  const int x = layer.tensor("x", Rows::own, layer.hidden());
  layer.splice(x, m.vision.pools() ? layer.pooled_image_rows() : layer.image_rows());
  BlockDescription described = layer.take();
  mark_frozen(described, m, prefix_of_layer(m, m.vision.layers));
  return described;
}

}  // namespace

/// pre-norm    x1 = x + dropout(attention(norm(x))),    out = x1 + dropout(feed_forward(norm(x1)))
///             (Radford et al. 2019; Touvron et al. 2023, arXiv 2302.13971)
/// post-norm   y1 = norm(x),  x1 = y1 + dropout(attention(y1)),
///             y2 = norm(x1), out = y2 + dropout(feed_forward(y2))
///             (Vaswani et al. 2017; Devlin et al. 2019, arXiv 1810.04805)
/// sandwich    x1 = x + dropout(norm(attention(norm(x)))),
///             out = x1 + dropout(norm(feed_forward(norm(x1))))
///             (Ding et al. 2021, arXiv 2105.13290; Gemma Team 2024, arXiv 2408.00118)
/// output      x1 = x + dropout(norm(attention(x))),    out = x1 + dropout(norm(feed_forward(x1)))
///             (OLMo Team 2025, arXiv 2501.00656)
/// With an encoder, the decoder's layers also have xc = x1 + dropout(cross_attention(norm(x1))),
/// and the encoder's last layer ends with a norm (Raffel et al. 2020, arXiv 1910.10683,
/// section 2.1). The layers of an encoder of images are those of its own model. The layer of a
/// module that predicts a further token begins with merged_embeddings(). A post-norm layer begins
/// with the norm after the previous layer's addition: the first layer's first norm belongs to the
/// embeddings, and the head's norm to the last layer.
BlockDescription describe_layer(const ModelConfig& model, std::int64_t number) {
  if (model.is_projector(number)) return describe_projector(model);
  std::optional<ModelConfig> of_images;
  if (model.vision.present() && model.in_encoder(number)) of_images = model.of_source();
  const ModelConfig& m = of_images ? *of_images : model;
  check(m.heads % m.heads_per_group() == 0 &&
            (m.key_value_heads == 0 || m.heads % m.key_value_heads == 0),
        m.heads, " heads over ", m.key_value_heads, " key and value heads, expected a divisor");
  const bool post = m.norm_placement == NormPlacement::post;
  const bool before = m.norm_placement != NormPlacement::output;
  const bool after = m.norm_placement == NormPlacement::sandwich || !before;
  LayerBuilder layer(m, number);
  int x = layer.tensor("x", Rows::own, layer.hidden());
  if (m.in_module(number))
    x = layer.merged_embeddings(x, number - m.first_decoder_layer() - m.layers);
  if (number == 0 && m.encoder.first_norm) x = layer.norm("first_norm", "x0", x);

  // attention(y) = output(softmax(q kᵀ / √K) v), with q, k, v = query_key_value(y)
  int y1 = before ? layer.norm("attention_norm", "y1", x) : x;
  if (post && number == 0) y1 = layer.dropout_of_embedding(y1);
  const int qkv =
      m.has_latent_attention() ? layer.latent_query_key_value(y1) : layer.query_key_value(y1);
  layer.query_key_norm(qkv);
  if (m.positions == Positions::rotary) layer.rotary(qkv);
  int z1 = layer.attention_output(layer.attention(qkv));
  if (after) z1 = layer.norm("attention_output_norm", "n1", z1);
  int x1 = layer.residual("x1", post ? y1 : x, z1, 1);
  if (m.encoder.present() && !m.in_encoder(number)) {
    const int yc = layer.norm("cross_attention_norm", "yc", x1);
    x1 = layer.residual("xc", x1, layer.cross_attention(yc), cross_attention_site);
  }

  // feed_forward(y) = down(gelu(up(y))), or with a gate down(silu(gate(y)) · up(y)), or gelu
  // instead of silu; with experts, the weighted sum of the results of a token's experts
  const int y2 = before ? layer.norm("feed_forward_norm", "y2", x1) : x1;
  int z2 = m.has_experts(number) ? layer.experts(y2) : layer.down(layer.activation(layer.up(y2)));
  if (after) z2 = layer.norm("feed_forward_output_norm", "n2", z2);
  const bool last_of_encoder = number + 1 == m.encoder.layers && m.encoder.final_norm;
  const int x2 = layer.residual(last_of_encoder ? "x2" : "out", post ? y2 : x1, z2, 2);
  if (last_of_encoder) layer.last_norm("final_norm", "out", x2);
  BlockDescription described = layer.take();
  add_adapters(described, m.adapter, part_of_layer(model, number));
  mark_frozen(described, m, prefix_of_layer(model, number));
  return described;
}

}  // namespace trireme::architecture
