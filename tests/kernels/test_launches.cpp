// Every public kernel: its launches have labels "kernels/…", and it neither waits, allocates nor
// copies. A new kernel belongs in the lists below.
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/attention_range.hpp>
#include <trireme/kernels/attention_sinks.hpp>
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>
#include <trireme/kernels/expert_capacity.hpp>
#include <trireme/kernels/expert_copies.hpp>
#include <trireme/kernels/experts.hpp>
#include <trireme/kernels/hash.hpp>
#include <trireme/kernels/head_norm.hpp>
#include <trireme/kernels/images.hpp>
#include <trireme/kernels/latent_heads.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/norm.hpp>
#include <trireme/kernels/outer_step.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/kernels/rotary.hpp>
#include <trireme/kernels/update_rules.hpp>
#include <trireme/kernels/weight_norm.hpp>
#include <trireme/kernels/width_norm.hpp>

#include <support/device_array.hpp>
#include <support/launch_recorder.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::LaunchRecorder;

constexpr std::int64_t few_rows = 6;
constexpr std::int64_t few_columns = 8;
constexpr std::int64_t few_elements = 96;  // enough for every shape below
constexpr Dropout half_dropout{0.5, {1, Purpose::dropout, 2, 3}, 0};

/// Arrays that all calls share; their content does not matter here.
template <class T>
struct Arrays {
  DeviceArray<T> a{few_elements}, b{few_elements}, c{few_elements}, d{few_elements};
  DeviceArray<T> gain{few_columns}, bias{few_columns};
  DeviceArray<Accumulate<T>> mean{few_rows}, inverse{few_rows}, dgain{few_columns},
      dbias{few_columns};
  DeviceArray<Accumulate<T>> dtable{few_elements}, dpositions{few_elements};
  DeviceArray<double> loss{few_rows}, one{1}, control{control_size}, status{status_size},
      statistics{3 * few_rows}, merged{3 * few_rows};
  DeviceArray<std::int32_t> tokens{few_rows}, order{few_rows}, bounds{few_rows};
  DeviceArray<Accumulate<T>> routes{2 * few_rows}, scores{few_elements};
  DeviceArray<std::int64_t> count{1}, zero{1};
};

using Call = std::function<void(const Handle&)>;

/// Public kernels by name, here and below.
template <class T>
std::map<std::string, Call> kernels_of_layers(const Arrays<T>& x) {
  const auto matrix = [](const auto& array) { return array.matrix(few_rows, few_columns); };
  const View2<T> a = matrix(x.a), b = matrix(x.b), c = matrix(x.c);
  const View2<T> half = x.d.matrix(few_rows, few_columns / 2);
  const View2<Accumulate<T>> two = x.dtable.matrix(2, few_rows);  // a value per row, of two parts
  const WidthNorm width{2, 2, 2, 2};
  const View1<T> few_gains = part(x.gain.flat(), 0, 2);
  const auto mean = x.mean.flat(), inverse = x.inverse.flat(), dgain = x.dgain.flat(),
             dbias = x.dbias.flat();
  const auto gain = x.gain.flat(), bias = x.bias.flat();
  const HeadNorm heads{1, 0, few_columns / 2};
  const View1<T> query(gain.data(), few_columns / 2);
  const View1<Accumulate<T>> dquery(dgain.data(), few_columns / 2);
  return {
      {"layer_norm_forward",
       [=](const Handle& e) { layer_norm_forward<T>(e, a, mean, inverse, b, gain, bias, 1e-5); }},
      {"layer_norm_backward_input",
       [=](const Handle& e) {
         layer_norm_backward_input<T>(e, a, b, c, mean, inverse, gain, true);
       }},
      {"layer_norm_backward_weight",
       [=](const Handle& e) {
         layer_norm_backward_weight<T>(e, dgain, dbias, b, c, mean, inverse);
       }},
      {"rms_norm_forward",
       [=](const Handle& e) { rms_norm_forward<T>(e, a, inverse, b, gain, 0, 1e-5); }},
      {"rms_norm_backward_input",
       [=](const Handle& e) { rms_norm_backward_input<T>(e, a, b, c, inverse, gain, 0, true); }},
      {"rms_norm_backward_weight",
       [=](const Handle& e) { rms_norm_backward_weight<T>(e, dgain, b, c, inverse); }},
      {"head_norm_forward",
       [=](const Handle& e) {
         head_norm_forward<T>(e, a, half, x.inverse.matrix(few_rows, 1), query, query, heads);
       }},
      {"head_norm_backward_input",
       [=](const Handle& e) {
         head_norm_backward_input<T>(e, a, half, x.inverse.matrix(few_rows, 1), query, query,
                                     heads);
       }},
      {"head_norm_backward_weight",
       [=](const Handle& e) {
         head_norm_backward_weight<T>(e, dquery, dquery, a, half, x.inverse.matrix(few_rows, 1),
                                      heads);
       }},
      {"width_norm_squares",
       [=](const Handle& e) { width_norm_squares<T>(e, two, half, a, width); }},
      {"width_norm_forward",
       [=](const Handle& e) { width_norm_forward<T>(e, a, two, few_gains, few_gains, width); }},
      {"width_norm_products",
       [=](const Handle& e) {
         width_norm_products<T>(e, two, a, half, two, few_gains, few_gains, width);
       }},
      {"width_norm_backward_input",
       [=](const Handle& e) {
         width_norm_backward_input<T>(e, a, half, two, two, few_gains, few_gains, width);
       }},
      {"width_norm_factors", [=](const Handle& e) { width_norm_factors<T>(e, two, width); }},
      {"rotary_forward",
       [=](const Handle& e) {
         rotary_forward<T>(e, a, Rotary{1, 6});
       }},
      {"rotary_backward",
       [=](const Handle& e) {
         rotary_backward<T>(e, a, Rotary{1, 6});
       }},
      {"swiglu_forward", [=](const Handle& e) { swiglu_forward<T>(e, half, c); }},
      {"row_squares", [=](const Handle& e) { row_squares<T>(e, mean, a); }},
      {"row_magnitudes", [=](const Handle& e) { row_magnitudes<T>(e, gain, dgain); }},
      {"row_scales", [=](const Handle& e) { row_scales<T>(e, dgain, dbias, dbias, gain); }},
      {"scale_columns", [=](const Handle& e) { scale_columns<T>(e, a, b, dgain, bias); }},
      {"magnitude_terms", [=](const Handle& e) { magnitude_terms<T>(e, a, b, dgain); }},
      {"swiglu_backward", [=](const Handle& e) { swiglu_backward<T>(e, a, half, c); }},
      {"clamped_swiglu_forward",
       [=](const Handle& e) { clamped_swiglu_forward<T>(e, half, c, 7); }},
      {"clamped_swiglu_backward",
       [=](const Handle& e) { clamped_swiglu_backward<T>(e, a, half, c, 7); }},
      {"geglu_forward", [=](const Handle& e) { geglu_forward<T>(e, half, c); }},
      {"geglu_backward", [=](const Handle& e) { geglu_backward<T>(e, a, half, c); }},
      {"gelu_forward", [=](const Handle& e) { gelu_forward<T>(e, a, b); }},
      {"gelu_backward", [=](const Handle& e) { gelu_backward<T>(e, a, b, c); }},
      {"gelu_forward, exact", [=](const Handle& e) { gelu_forward<T>(e, a, b, Gelu::exact); }},
      {"gelu_backward, exact", [=](const Handle& e) { gelu_backward<T>(e, a, b, c, Gelu::exact); }},
      {"tanh_forward", [=](const Handle& e) { tanh_forward<T>(e, a, b); }},
      {"tanh_backward", [=](const Handle& e) { tanh_backward<T>(e, a, b, c); }},
      {"residual_dropout_forward",
       [=](const Handle& e) { residual_dropout_forward<T>(e, a, b, c, half_dropout); }},
      {"dropout_forward", [=](const Handle& e) { dropout_forward<T>(e, a, b, half_dropout); }},
      {"dropout_backward", [=](const Handle& e) { dropout_backward<T>(e, a, b, half_dropout); }},
  };
}

/// Each token uses one of `few_columns` experts.
template <class T>
std::map<std::string, Call> kernels_of_experts(const Arrays<T>& x) {
  using A = Accumulate<T>;
  const View2<T> a = x.a.matrix(few_rows, few_columns), b = x.b.matrix(few_rows, few_columns);
  const View2<A> routes = x.routes.matrix(few_rows, 2),
                 scores = x.scores.matrix(few_rows, few_columns),
                 gradient = x.dtable.matrix(few_rows, few_columns),
                 of_routes = x.dpositions.matrix(few_rows, 2);
  const auto order = x.order.flat(), bounds = part(x.bounds.flat(), 0, 3);
  const auto sums = x.mean.flat();
  const auto losses = x.loss.flat();
  return {{"choose_experts",
           [=](const Handle& e) { choose_experts<A>(e, routes, scores, View1<const A>(), {}); }},
          {"choose_experts, by scores",
           [=](const Handle& e) {
             choose_experts<A>(e, routes, scores, View1<const A>(sums.data(), few_columns),
                               {1, true, true, 1, 1, 1});
           }},
          {"choose_experts_backward",
           [=](const Handle& e) {
             choose_experts_backward<A>(e, gradient, of_routes, routes, scores, {});
           }},
          {"log_sums_of_exponentials",
           [=](const Handle& e) { log_sums_of_exponentials<A>(e, sums, scores); }},
          {"leave_out_padding",
           [=](const Handle& e) { leave_out_padding<A>(e, routes, scores, {}, x.tokens.flat()); }},
          {"count_chunks",
           [=](const Handle& e) {
             count_chunks<A>(e, gradient, routes, {1, 1});
           }},
          {"drop_routes",
           [=](const Handle& e) {
             drop_routes<A>(e, routes, gradient, {1, 1}, 1000);  // the numbers stay
           }},
          {"count_dropped", [=](const Handle& e) { count_dropped<A>(e, losses, routes); }},
          {"count_experts", [=](const Handle& e) { count_experts<A>(e, gradient, routes); }},
          {"balance_experts",
           [=](const Handle& e) {
             balance_experts<A, A>(e, losses, gradient, scores, scores, {0, 1}, 1, {});
           }},
          {"limit_logits",
           [=](const Handle& e) { limit_logits<A>(e, losses, gradient, scores, sums, 1, {}); }},
          {"order_routes",
           [=](const Handle& e) {
             order_routes<A>(e, order, bounds, routes, {0, 2});
           }},
          {"list_copies",
           [=](const Handle& e) {
             list_copies<A>(e, order, bounds, routes, {2, 2, 1, 0});
           }},
          {"pick_routed", [=](const Handle& e) { pick_routed<T>(e, a, b, order, 1); }},
          {"add_routed", [=](const Handle& e) { add_routed<T>(e, gradient, a, order, 1); }},
          {"weigh_routed", [=](const Handle& e) { weigh_routed<T>(e, a, routes, order); }},
          {"dot_routed", [=](const Handle& e) { dot_routed<T>(e, of_routes, a, b, order); }},
          {"add_weighed_bias",
           [=](const Handle& e) {
             add_weighed_bias<T>(e, a, part(x.c.flat(), 0, few_columns), routes, order);
           }},
          {"dot_bias",
           [=](const Handle& e) {
             dot_bias<T>(e, of_routes, a, part(x.c.flat(), 0, few_columns), order);
           }},
          {"gate_rows", [=](const Handle& e) { gate_rows<T>(e, a, b, sums); }},
          {"gate_rows_backward",
           [=](const Handle& e) {
             gate_rows_backward<T>(e, a, part(x.c.flat(), 0, few_rows), b, sums);
           }},
          {"round_sums", [=](const Handle& e) { round_sums<T>(e, a, gradient); }}};
}

template <class T>
std::map<std::string, Call> kernels_of_vocabulary(const Arrays<T>& x) {
  const auto matrix = [](const auto& array) { return array.matrix(few_rows, few_columns); };
  const View2<T> a = matrix(x.a), b = matrix(x.b), c = matrix(x.c);
  const auto dtable = matrix(x.dtable), dpositions = matrix(x.dpositions);
  const auto tokens = x.tokens.flat();
  const auto loss = x.loss.flat();
  const auto statistics = x.statistics.matrix(few_rows, 3), merged = x.merged.matrix(few_rows, 3);
  const auto parts = x.statistics.cube(1, few_rows, 3);
  return {
      {"embedding_lookup", [=](const Handle& e) { embedding_lookup<T>(e, a, tokens, b, 0); }},
      {"add_positions", [=](const Handle& e) { add_positions<T>(e, a, c, few_rows, 0); }},
      {"embedding_lookup_backward",
       [=](const Handle& e) { embedding_lookup_backward<T>(e, dtable, b, tokens, 0); }},
      {"positions_backward",
       [=](const Handle& e) { positions_backward<T>(e, dpositions, b, few_rows, 0); }},
      {"add_segments",
       [=](const Handle& e) { add_segments<T>(e, a, x.b.matrix(2, few_columns), tokens, 0); }},
      {"segments_backward",
       [=](const Handle& e) {
         segments_backward<T>(e, x.dtable.matrix(2, few_columns), b, tokens, 0);
       }},
      {"image_patches",
       [=](const Handle& e) {
         ImageShape shape;
         shape.size = shape.patch = 2;
         image_patches<T>(e, x.a.matrix(1, 12), part(tokens, 0, 3), shape, 0);
       }},
      {"add_class_token",
       [=](const Handle& e) {
         add_class_token<T>(e, a, part(x.gain.flat(), 0, few_columns), 2, 0);
       }},
      {"class_token_backward",
       [=](const Handle& e) {
         class_token_backward<T>(e, part(x.dgain.flat(), 0, few_columns), b, 2, 0);
       }},
      {"pool_patches",
       [=](const Handle& e) {
         pool_patches<T>(e, a, b, {1, 1});
       }},
      {"pool_patches_backward",
       [=](const Handle& e) {
         pool_patches_backward<T>(e, a, b, {1, 1}, 0);
       }},
      {"splice_images",
       [=](const Handle& e) {
         splice_images<T>(e, a, b, c, part(tokens, 0, few_rows), {few_rows, few_rows, 0});
       }},
      {"splice_images_backward",
       [=](const Handle& e) {
         splice_images_backward<T>(e, a, c, b, part(tokens, 0, few_rows), {few_rows, few_rows, 0});
       }},
      {"pick_rows", [=](const Handle& e) { pick_rows<T>(e, a, b, tokens, 0); }},
      {"place_rows", [=](const Handle& e) { place_rows<T>(e, a, b, tokens, 0); }},
      {"cross_entropy_statistics",
       [=](const Handle& e) { cross_entropy_statistics<T>(e, statistics, a, tokens, 0); }},
      {"cross_entropy_merge",
       [=](const Handle& e) { cross_entropy_merge(e, loss, merged, parts); }},
      {"cross_entropy_gradient",
       [=](const Handle& e) { cross_entropy_gradient<T>(e, a, a, merged, tokens, 0, 1.0); }},
      {"soft_cap", [=](const Handle& e) { soft_cap<T>(e, a, 30); }},
  };
}

template <class T>
std::map<std::string, Call> kernels_of_arrays(const Arrays<T>& x) {
  const auto a = x.a.flat(), b = x.b.flat();
  const auto m = x.dtable.flat(), v = x.dpositions.flat();
  const auto one = x.one.flat(), loss = x.loss.flat();
  const auto control = x.control.flat(), status = x.status.flat();
  const auto count = x.count.flat(), zero = x.zero.flat();
  const UpdateStep update{OptimizerKind::adamw, {}, 0.1, control, {}, {}};
  const UpdateStep of_lamb{OptimizerKind::lamb, {}, 0.1, control, {}, {}};
  return {
      {"accumulate", [=](const Handle& e) { accumulate<T>(e, a, b); }},
      {"scale", [=](const Handle& e) { scale<T>(e, a, 2.0); }},
      {"fill", [=](const Handle& e) { fill<T>(e, a, 2.0); }},
      {"copy", [=](const Handle& e) { copy<T>(e, a, b); }},
      {"outer_difference", [=](const Handle& e) { outer_difference<T, T>(e, a, b, m); }},
      {"mean_of_workers",
       [=](const Handle& e) {
         mean_of_workers<T>(e, View1<T>(a.data(), few_columns), x.b.matrix(few_rows, few_columns));
       }},
      {"outer_update",
       [=](const Handle& e) {
         outer_update<T, T>(e, a, m, b, {0.7, 0.9, true});
       }},
      {"mix_with_outer", [=](const Handle& e) { mix_with_outer<T>(e, a, b, 0.5); }},
      {"swap_contents", [=](const Handle& e) { swap_contents<T>(e, a, m); }},
      {"sum_ordered", [=](const Handle& e) { sum_ordered(e, one, loss); }},
      {"plan_update",
       [=](const Handle& e) {
         plan_update(e, control, status, loss, {1, 1.0, 0.9, 0.95, 10, {}});
       }},
      {"mark_non_finite", [=](const Handle& e) { mark_non_finite<T>(e, a, one); }},
      {"element_pass",
       [=](const Handle& e) {
         element_pass<T>(e, 0, {a, b, {{{m, {}}, {v, {}}}}}, update, whole_update(4));
       }},
      {"balance_update",
       [=](const Handle& e) { balance_update<T>(e, a, b, 0.1, control, whole_update(4)); }},
      {"find_factors",
       [=](const Handle& e) { find_factors(e, 1, one, one, one, one, 1, of_lamb); }},
      {"squared_norm_blocks", [=](const Handle& e) { squared_norm_blocks<T>(e, one, a); }},
      {"squared_norm_blocks of many",
       [=](const Handle& e) { squared_norm_blocks<T>(e, one, a, zero, zero); }},
      {"segment_sums", [=](const Handle& e) { segment_sums(e, one, loss, zero); }},
      {"root_of_sum", [=](const Handle& e) { root_of_sum(e, one, loss); }},
      {"count_non_finite", [=](const Handle& e) { count_non_finite<T>(e, count, a); }},
      {"add_hash_of_bits",
       [=](const Handle& e) {
         const View1<std::uint64_t> hash(reinterpret_cast<std::uint64_t*>(count.data()), 1);
         add_hash_of_bits(e, hash, a.data(), extent(a, 0), sizeof(T));
       }},
      {"normal_fill", [=](const Handle& e) { normal_fill<T>(e, a, half_dropout.key, 1.0, 0); }},
      {"uniform_fill",
       [=](const Handle& e) {
         uniform_fill<T>(e, View3<T>(a.data(), 1, a.extent(0), 1), half_dropout.key, 1.0,
                         extent(a, 0), 0);
       }},
  };
}

template <class T>
std::map<std::string, Call> kernels_of_matrices(const Arrays<T>& x) {
  const View2<T> a = x.a.matrix(few_columns, few_columns), b = x.b.matrix(few_columns, few_columns),
                 c = x.c.matrix(few_columns, few_columns);
  const auto dw = x.dtable.matrix(few_columns, few_columns);
  const auto dbias = x.dbias.flat();
  const auto bias = x.bias.flat();
  return {
      {"matmul",
       [=](const Handle& e) { matmul<T>(e, a, b, c, Transpose::no, Transpose::yes, 1.0, 1.0); }},
      {"linear_forward", [=](const Handle& e) { linear_forward<T>(e, a, b, c, bias); }},
      {"linear_backward_input", [=](const Handle& e) { linear_backward_input<T>(e, a, b, c); }},
      {"linear_backward_weight",
       [=](const Handle& e) { linear_backward_weight<T>(e, dw, dbias, b, c); }},
      {"linear_gelu_forward",
       [=](const Handle& e) { linear_gelu_forward<T>(e, a, b, c, c, bias, Gelu::tanh); }},
      {"linear_gelu_backward_input",
       [=](const Handle& e) { linear_gelu_backward_input<T>(e, a, b, c, c, Gelu::tanh); }},
  };
}

template <class T>
std::map<std::string, Call> kernels_of_attention(const Arrays<T>& x) {
  AttentionShape shape;
  shape.batch = 1;
  shape.sequence = few_rows;
  shape.heads = shape.key_value_heads = 1;
  shape.head_size = 4;
  const View2<T> o = x.a.matrix(few_rows, 4), grad = x.b.matrix(few_rows, 4);
  const View2<T> qkv = x.c.matrix(few_rows, 12), dqkv = x.d.matrix(few_rows, 12);
  const View2<T> query = x.b.matrix(1, 4), result = x.a.matrix(1, 4);
  const View3<T> keys = x.c.cube(1, few_rows, 4), values = x.d.cube(1, few_rows, 4);
  const View1<const std::int32_t> first(x.tokens.data(), 1);
  const CacheRows one{first, first};
  const auto lse = x.mean.cube(1, 1, few_rows);
  const auto workspace = x.inverse.flat();
  const AttentionDropout mask{0.5, {1, Purpose::attention_dropout, 2, 3}, 0, 0, 0};
  AttentionShape with_group = shape;
  with_group.group = 1;
  with_group.scale = 0.5;
  const AttentionRange part(with_group);
  AttentionShape across = shape, biased = shape;
  across.causal = false;
  across.key_sequence = 2;
  across.key_begin = across.key_end = View1<const std::int32_t>(x.tokens.data(), few_rows);
  biased.buckets = relative_buckets(4, 3, false);
  const View2<T> two_keys = x.d.matrix(2, 8), dtwo_keys = x.c.matrix(2, 8);
  const View2<const T> biases = x.b.matrix(4, 1);
  const auto dbiases = x.dtable.matrix(4, 1);
  const auto workspace_of = [&](const AttentionShape& s) {
    return View1<Accumulate<T>>(x.dpositions.data(),
                                at(attention_workspace_elements<T>(KernelChoice(), s)));
  };
  const auto biased_work = workspace_of(biased), across_work = workspace_of(across);
  const View2<T> key_value = x.d.matrix(few_rows, 8);
  const auto dkey_value = x.dtable.matrix(few_rows, 8);
  const View1<Accumulate<T>> sums(x.dpositions.flat().data(), few_rows * 4);
  return {
      {"attention_part_forward",
       [=](const Handle& e) {
         attention_part_forward<T>(e, o, sums, lse, qkv, key_value, part, false, mask);
       }},
      {"attention_part_backward",
       [=](const Handle& e) {
         attention_part_backward<T>(e, dqkv, sums, dkey_value, grad, qkv, key_value, lse, workspace,
                                    part, false, mask);
       }},
      {"attention_delta",
       [=](const Handle& e) { attention_delta<T>(e, workspace, grad, o, shape); }},
      {"copy_columns", [=](const Handle& e) { copy_columns<T>(e, o, qkv, 4); }},
      {"place_columns", [=](const Handle& e) { place_columns<T>(e, dqkv, dkey_value, 4); }},
      {"attention_forward",
       [=](const Handle& e) { attention_forward<T>(e, o, lse, qkv, shape, mask); }},
      {"attention_backward",
       [=](const Handle& e) {
         attention_backward<T>(e, dqkv, grad, o, qkv, lse, workspace, shape, mask);
       }},
      {"attention_forward to other keys",
       [=](const Handle& e) { attention_forward<T>(e, o, lse, grad, two_keys, across, mask); }},
      {"attention_backward to other keys",
       [=](const Handle& e) {
         attention_backward<T>(e, grad, dtwo_keys, o, o, grad, two_keys, lse, across_work, across,
                               mask);
       }},
      {"attention_forward with biases",
       [=](const Handle& e) { attention_forward<T>(e, o, lse, qkv, biased, mask, biases); }},
      {"attention_backward with biases",
       [=](const Handle& e) {
         attention_backward<T>(e, dqkv, grad, o, qkv, lse, biased_work, biased, mask, biases,
                               dbiases);
       }},
      {"attention_decode with biases",
       [=](const Handle& e) {
         attention_decode<T>(e, result, query, keys, values, one, biased, {}, biases);
       }},
      {"join_heads",
       [=](const Handle& e) {
         join_heads<T>(e, qkv, o, key_value, x.b.matrix(few_rows, 0), {1, 4, 0, 4});
       }},
      {"join_heads_backward",
       [=](const Handle& e) {
         join_heads_backward<T>(e, o, key_value, x.b.matrix(few_rows, 0), qkv, {1, 4, 0, 4});
       }},
      {"take_values",
       [=](const Handle& e) {
         take_values<T>(e, o, grad, {1, 4, 0, 4});
       }},
      {"take_values_backward",
       [=](const Handle& e) {
         take_values_backward<T>(e, o, grad, {1, 4, 0, 4});
       }},
      {"attention_sinks_forward",
       [=](const Handle& e) {
         attention_sinks_forward<T>(e, o, lse, View1<const T>(x.b.flat().data(), 1));
       }},
      {"attention_sinks_backward",
       [=](const Handle& e) {
         const View1<Accumulate<T>> dsinks(x.dpositions.flat().data(), 1);
         attention_sinks_backward<T>(e, dsinks, grad, o, lse, View1<const T>(x.b.flat().data(), 1),
                                     View2<Accumulate<T>>(workspace.data(), few_rows, 1));
       }},
      {"attention_decode",
       [=](const Handle& e) { attention_decode<T>(e, result, query, keys, values, one, shape); }},
  };
}

/// Labels begin with "kernels/"; a kernel neither waits nor allocates nor makes hidden copies.
void expect_only_launches(const std::map<std::string, Call>& kernels,
                          const KernelChoice& choice = {}) {
  const Handle handle(choice);
  for (const auto& [name, call] : kernels) {
    call(handle);  // a back end may allocate its own scratch at its first launch
    fence(handle, "test begins");
    const LaunchRecorder recorder;
    call(handle);
    EXPECT_FALSE(recorder.labels().empty()) << name;
    for (const std::string& label : recorder.labels())
      EXPECT_TRUE(label.starts_with("kernels/")) << name << " launches " << label;
    EXPECT_EQ(recorder.fences(), 0) << name;
    EXPECT_EQ(recorder.allocations(), 0) << name;
    EXPECT_EQ(recorder.deep_copies(), 0) << name;
  }
  fence(handle, "test ends");
}

template <class T>
void expect_only_launches_of() {
  const Arrays<T> arrays;
  expect_only_launches(kernels_of_layers(arrays));
  expect_only_launches(kernels_of_experts(arrays));
  expect_only_launches(kernels_of_vocabulary(arrays));
  expect_only_launches(kernels_of_arrays(arrays));
  expect_only_launches(kernels_of_attention(arrays));
  // Libraries may launch anything; Trireme's own products must follow the rule.
  expect_only_launches(kernels_of_matrices(arrays),
                       KernelChoice().set_products(dtype_of<T>, MatmulBackend::tiled));
}

TEST(Launches, AreLabelledAndDoNotWaitOrAllocate) {
  expect_only_launches_of<float>();
  expect_only_launches_of<double>();
}

TEST(Launches, AppearInTheRecorder) {
  const LaunchRecorder recorder;
  const DeviceArray<float> x(4);
  fence(Exec{}, "a fence to be seen");
  scale<float>(Exec{}, x.flat(), 2.0);
  EXPECT_EQ(recorder.labels().back(), "kernels/scale");
  EXPECT_GE(recorder.fences(), 1);
  EXPECT_GE(recorder.allocations(), 1);
}

TEST(Launches, WrongShapesAreRejected) {
  const DeviceArray<float> x(12);
  EXPECT_THROW(gelu_forward<float>(Exec{}, x.matrix(3, 4), x.matrix(4, 3)), Error);
  EXPECT_THROW(accumulate<float>(Exec{}, View1<float>(x.data(), 3), View1<float>(x.data(), 4)),
               Error);
}

TEST(Launches, EmptyWorkLaunchesNothing) {
  const DeviceArray<float> x(12);
  const LaunchRecorder recorder;
  gelu_forward<float>(Exec{}, x.matrix(0, 4), x.matrix(0, 4));
  scale<float>(Exec{}, View1<float>(x.data(), 0), 2.0);
  EXPECT_TRUE(recorder.labels().empty());
}

}  // namespace
}  // namespace trireme::kernels
