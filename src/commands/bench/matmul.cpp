// trireme bench, section matmul: the peak of large square products, and every product of the deck's
// model on this rank's shard in its three passes.
#include <trireme/architecture/rank_sizes.hpp>
#include <trireme/commands/bench/bench.hpp>
#include <trireme/commands/bench/table.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/fp8.hpp>
#include <trireme/train/precision.hpp>

#include <array>
#include <cmath>
#include <functional>

namespace trireme::commands {
namespace {

constexpr std::array<const char*, 3> passes{"forward", "backward_input", "backward_weight"};

/// y [tokens, outputs] = x [tokens, inputs] wᵀ + bias.
struct Product {
  std::string name;
  std::int64_t tokens;
  std::int64_t outputs;
  std::int64_t inputs;
  bool bias;
  std::array<std::int64_t, 3> calls{};  ///< per step and pass
  bool wide = false;                    ///< output in the type of sums: logits
  bool gelu = false;  ///< x is GELU(h): the backward pass may return the gradient of h
  bool fp8 = false;   ///< operands are first rounded to fp8

  double flops() const { return 2.0 * static_cast<double>(tokens * outputs * inputs); }
};

/// The linear operations of the layers and the products of the head. All ranks list the same
/// products in the same order; a product that a rank does not run has 0 tokens.
std::vector<Product> products_of(const architecture::Architecture& a, const BenchShard& shard,
                                 bool fp8) {
  const architecture::RankSizes& n = shard.sizes;
  std::vector<Product> list;
  for (const plan::BlockKernel& k : shard.kernels) {
    const architecture::BlockDescription& layer = a.kinds[k.kind];
    const auto& op = layer.operations[static_cast<std::size_t>(k.call.operation)];
    const auto columns = [&](int tensor) {
      return architecture::columns_of(layer.tensors[static_cast<std::size_t>(tensor)].columns, n);
    };
    if (op.kind != architecture::OperationKind::linear || k.call.accumulates()) continue;
    if (list.empty() || list.back().name != op.name)
      list.push_back({op.name, shard.layers > 0 ? n.tokens : 0, columns(op.output),
                      columns(op.input()), !op.bias().empty()});
    list.back().fp8 = fp8;
    list.back().calls[static_cast<std::size_t>(k.call.pass)] = k.calls;
    if (k.call.fused >= 0) list.back().gelu = true;
  }
  for (const architecture::Operation& op : a.head().operations) {
    if (product_factor(op, architecture::Pass::forward) == 0) continue;
    const auto tensor = [&](int t) { return a.head().tensors[static_cast<std::size_t>(t)]; };
    const bool again = op.kind == architecture::OperationKind::logits && shard.logits_again;
    const architecture::Tensor y = tensor(op.output);
    const std::int64_t rows = shard.has_head ? rows_of(y.rows, n) : 0;
    const bool blocks = y.rows == architecture::Rows::logit_block && rows > 0;
    const std::int64_t calls = shard.micros * (blocks ? (n.targets + rows - 1) / rows : 1);
    list.push_back({op.name,
                    rows,
                    columns_of(y.columns, n),
                    columns_of(tensor(op.input()).columns, n),
                    !op.bias().empty(),
                    {again ? 2 * calls : calls, calls, calls},
                    y.numbers == architecture::Numbers::accumulate});
  }
  return list;
}

template <class P>
std::array<BenchTiming, 3> time_product(const BenchSetting& setting, const kernels::Handle& handle,
                                        const Product& p, Gelu form) {
  using T = typename P::Compute;
  using G = typename P::Gradient;
  const BenchArray<T> x(handle, p.tokens, p.inputs);
  const BenchArray<T> dx(handle, p.tokens, p.inputs);
  const BenchArray<T> w(handle, p.outputs, p.inputs);
  const auto columns = [&]<class U>(U) {
    return p.wide ? columns_in_lines<U>(p.outputs) : p.outputs;
  };
  const BenchArray<T> all_y(handle, p.tokens, columns(T{}));
  const BenchArray<Accumulate<T>> all_wide(handle, p.wide ? p.tokens : 0, columns(Accumulate<T>{}));
  const View2<T> y = all_y.columns(p.outputs);
  const View2<Accumulate<T>> wide = all_wide.columns(p.outputs);
  const BenchArray<T> b(handle, p.bias ? p.outputs : 0);
  const BenchArray<G> dw(handle, p.outputs, p.inputs);
  const BenchArray<G> db(handle, p.bias ? p.outputs : 0);
  const auto forward = [&] {
    if (p.wide)
      kernels::linear_forward_wide<T>(handle, wide, x, w, b);
    else
      kernels::linear_forward<T>(handle, y, x, w, b);
  };
  const bool fused = p.gelu && kernels::fuses_gelu(handle, dtype_of<T>, form, p.inputs);
  const auto backward_input = [&] {
    if (fused)
      kernels::linear_gelu_backward_input<T>(handle, dx, y, w, x, form);
    else
      kernels::linear_backward_input<T>(handle, dx, y, w);
  };
  const auto backward_weight = [&] { kernels::linear_backward_weight<T>(handle, dw, db, y, x); };
  const bool here = p.flops() > 0;
  const auto time = [&](const std::function<void()>& call) {
    return time_calls(setting, here ? call : nullptr);
  };
  return {time(forward), time(backward_input), time(backward_weight)};
}

/// Times the three passes of an fp8 product: each rounds and transposes its operands and multiplies
/// them, with scales of 1.
std::array<BenchTiming, 3> time_fp8_product(const BenchSetting& setting,
                                            const kernels::Handle& handle, const Product& p) {
  const BenchArray<Bf16> x(handle, p.tokens, p.inputs), dx(handle, p.tokens, p.inputs);
  const BenchArray<Bf16> w(handle, p.outputs, p.inputs), y(handle, p.tokens, p.outputs);
  const BenchArray<Bf16> b(handle, p.bias ? p.outputs : 0);
  const BenchArray<float> dw(handle, p.outputs, p.inputs), db(handle, p.bias ? p.outputs : 0);
  const BenchArray<float> codes(  // for x, w and y; a pass uses two of them
      handle, (fp8_operand_bytes(p.tokens * p.inputs) + fp8_operand_bytes(p.outputs * p.inputs) +
               fp8_operand_bytes(p.tokens * p.outputs)) /
                  4);
  const BenchArray<float> numbers(handle, 2);
  kernels::fill(handle, numbers.list(), 1.0F);
  const float* const one = numbers.list().data();
  const kernels::Fp8Scale scale{one, one, numbers.list().data() + 1};
  const kernels::Fp8Linear fp8{scale, scale, scale,
                               reinterpret_cast<std::byte*>(codes.list().data())};
  const bool here = p.flops() > 0;
  const auto time = [&](const std::function<void()>& call) {
    return time_calls(setting, here ? call : nullptr);
  };
  return {time([&] { kernels::fp8_linear_forward(handle, y, x, w, b, fp8); }),
          time([&] { kernels::fp8_linear_backward_input(handle, dx, y, w, fp8); }),
          time([&] { kernels::fp8_linear_backward_weight(handle, dw, db, y, x, fp8); })};
}

}  // namespace

BenchReport bench_matmul(const BenchSetting& setting) {
  know_peak(setting);
  const deck::Config& config = setting.session.config();
  const BenchPeak& peak = *setting.machine.peak;
  const DType type = config.precision.compute;
  const kernels::Handle handle(train::kernel_choice(config.precision));
  const std::string how = text("large square ", name_of(type), " products by ",
                               handle.choice().products_description(type), ", all ranks at once");
  BenchReport report;
  report.rows = {{"matmul", "peak_of_all_ranks", peak.all / 1e9, "GFLOP/s", how},
                 {"matmul", "peak_of_slowest_rank", peak.slowest / 1e9, "GFLOP/s", how}};
  const bool fp8 = config.precision.products == Products::fp8;
  double step = 0;
  double at_peak = 0;
  BenchTable table({"product", "tokens × outputs × inputs", "forward", "gradient of input",
                    "gradient of weight"},
                   BenchTable::Last::number);
  for (const Product& p : products_of(setting.session.architecture, shard_of(setting), fp8)) {
    const auto timings = train::with_precision(type, [&](auto number_types) {
      if (p.fp8) return time_fp8_product(setting, handle, p);
      return time_product<decltype(number_types)>(setting, handle, p, config.model.gelu);
    });
    if (timings[0].rank < 0) continue;
    std::vector<std::string> cells;
    for (std::size_t pass = 0; pass < passes.size(); ++pass) {
      const BenchTiming& t = timings[pass];
      const auto of = from_rank(
          setting, t.rank,
          {p.flops(), peak.mine, static_cast<double>(p.tokens), static_cast<double>(p.outputs),
           static_cast<double>(p.inputs), static_cast<double>(p.calls[pass])});
      const std::array<std::int64_t, 3> n{std::llround(of[2]), std::llround(of[3]),
                                          std::llround(of[4])};
      constexpr std::array<std::array<std::size_t, 3>, 3> order{{{0, 1, 2}, {0, 2, 1}, {1, 2, 0}}};
      const auto& [rows, outputs, sum] = order[pass];
      if (!p.fp8)  // a machine file's efficiency refers to bf16
        setting.machine.products.push_back({{n[rows], n[outputs], n[sum]}, of[5], t.seconds});
      step += of[5] * t.seconds;
      at_peak += of[5] * of[0] / of[1];
      const double rate = of[0] / t.seconds;
      const std::string shape = text(of[2], " × ", of[3], " × ", of[4]);
      const std::string name = text(p.name, ".", passes[pass]);
      if (cells.empty()) cells = {p.name, shape};
      cells.push_back(text(rounded(rate / 1e9), "  ", rough_percent(rate / of[1])));
      const std::string what =
          text(shape, " (tokens, outputs, inputs), ", p.fp8 ? "fp8, " : "", "slowest rank");
      report.rows.push_back({"matmul", name + ".seconds", t.seconds, "s", what});
      report.rows.push_back({"matmul", name + ".rate", rate / 1e9, "GFLOP/s", what});
      report.rows.push_back({"matmul", name + ".share", rate / of[1], "1", "of that rank's peak"});
    }
    table.add(cells);
  }
  report.rows.push_back(
      {"matmul", "step.seconds", step, "s", "sum of calls × seconds of all products"});
  report.rows.push_back({"matmul", "step.peak_seconds", at_peak, "s", "the same at the peak rate"});
  std::string chosen;  // choices of cuBLASLt on rank 0
  for (const std::string& line : handle.product_choices()) {
    chosen += "\n  " + line;
    const std::string name = text("choice.", report.rows.size());
    report.rows.push_back({"matmul", name, 1, "1", line});
  }
  if (!chosen.empty()) chosen = "\nchosen by cuBLASLt's heuristics on rank 0" + chosen;
  report.table = text("peak: ", rounded(peak.slowest / 1e9), " GFLOP/s on the slowest rank, ",
                      rounded(peak.all / 1e9), " on all; ", how,
                      fp8 ? "\nthe layers' products round their operands to fp8; shares are of the "
                            "peak above"
                          : "",
                      "\nGFLOP/s of the slowest rank, and share of its peak\n", table.str(),
                      "\n  one step: ", rounded_seconds(step), ", at the peak rate ",
                      rounded_seconds(at_peak), chosen);
  return report;
}

}  // namespace trireme::commands
