#include <trireme/kernels/update.hpp>

#include <kernels/cases.hpp>
#include <kernels/rule_passes.hpp>
#include <support/device_array.hpp>
#include <support/launch_recorder.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Many arrays by one launch, compared with one launch per array.
namespace trireme::kernels {
namespace {

using testing::at;
using testing::DeviceArray;
using testing::LaunchRecorder;
using testing::random_numbers;

/// Arrays of these lengths in arenas with gaps between them, at different places in each arena.
struct Places {
  std::vector<UpdateRange> parts;
  std::int64_t chunks = 0;
  std::int64_t room = 7;  ///< elements of each arena

  Places() {
    std::int32_t array = 0;
    for (const std::int64_t n : {1, 5, 4096, 4097, 33, 3 * 4096 - 1, 13}) {
      UpdateRange& part = parts.emplace_back();
      part.first_chunk = chunks;
      part.elements = n;
      part.weight = room;
      part.gradient = room + 3;
      part.rounded = part.gradient;
      part.state = room + 9;
      part.array = array++;
      part.decays = array % 2;
      chunks += chunks_of(n);
      room += n + 16;
    }
  }
};

template <class T>
struct Arenas {
  explicit Arenas(std::int64_t n)
      : w(random_numbers<T>(n, 1)),
        m(random_numbers<T>(n, 2)),
        v(positive(n)),
        g(random_numbers<T>(n, 4)) {}

  static std::vector<double> positive(std::int64_t n) {
    auto numbers = random_numbers<T>(n, 3);
    for (double& x : numbers) x *= x;
    return numbers;
  }

  static View1<T> cut(const DeviceArray<T>& all, std::int64_t first, std::int64_t n) {
    return View1<T>(all.data() + first, static_cast<std::size_t>(n));
  }
  View1<T> w_of(const UpdateRange& p) const { return cut(w, p.weight, p.elements); }
  View1<T> m_of(const UpdateRange& p) const { return cut(m, p.state, p.elements); }
  View1<T> v_of(const UpdateRange& p) const { return cut(v, p.state, p.elements); }
  View1<T> g_of(const UpdateRange& p) const { return cut(g, p.gradient, p.elements); }

  DeviceArray<T> w, m, v, g;
};

template <class T>
class RangedUpdates : public ::testing::Test {
 protected:
  /// Checks that one launch of `together` does to all arenas what `alone` does array by array.
  template <class Together, class Alone>
  void expect_same(const char* label, const Together& together, const Alone& alone) {
    const Arenas<T> one(places_.room), each(places_.room);
    {
      const LaunchRecorder recorder;
      together(one);
      EXPECT_EQ(recorder.labels(), std::vector<std::string>{label});
    }
    for (const UpdateRange& part : places_.parts) alone(each, part);
    const Arenas<T> before(places_.room);
    EXPECT_TRUE(one.w.values() != before.w.values() || one.g.values() != before.g.values())
        << "nothing was done";
    EXPECT_EQ(one.w.values(), each.w.values());
    EXPECT_EQ(one.m.values(), each.m.values());
    EXPECT_EQ(one.v.values(), each.v.values());
    EXPECT_EQ(one.g.values(), each.g.values());
  }

  const Exec exec_{};
  const Places places_;
  const DeviceArray<UpdateRange> table_{places_.parts};
  const kernels::UpdateRanges parts_{table_.flat(), places_.chunks, {}};
  const DeviceArray<double> control_{std::vector<double>{1, 0.7, 0.1, 0.05, 3, 1}};
};
TYPED_TEST_SUITE(RangedUpdates, WideTypes);

/// Every pass over elements of every rule, also with momentum and with Nesterov momentum.
TYPED_TEST(RangedUpdates, EveryRuleMatchesSingleArraysBitForBit) {
  using T = TypeParam;
  const DeviceArray<double> factors(std::vector<double>{1, 2, 0.5, 3, 0.25, 4, 7});
  for (const std::string_view word : names<OptimizerKind>())
    for (const auto& [momentum, nesterov] : {std::pair{0.0, false}, {0.9, false}, {0.9, true}}) {
      rules::Settings settings = testing::adam_settings();
      settings.momentum = momentum;
      settings.nesterov = nesterov;
      settings.trust_coefficient = 0.02;
      settings.minimum_scale = 1e-3;
      settings.update_threshold = 1;
      settings.decay_exponent = 0.8;
      const auto kind = parse<OptimizerKind>(word).value();
      for (const rules::Pass& pass : rules::rule_of(kind).passes(settings)) {
        if (pass.kind != rules::PassKind::elements) continue;
        SCOPED_TRACE(pass.label);
        const std::string name = std::string(pass.label).substr(std::string("kernels/").size());
        this->expect_same(
            pass.label,
            [&](const Arenas<T>& x) {
              testing::run_pass<T>(name,
                                   {x.w.flat(), x.g.flat(), x.m.flat(), x.v.flat(), factors.flat()},
                                   settings, 1e-2, this->control_.flat(), this->parts_);
            },
            [&](const Arenas<T>& x, const UpdateRange& p) {
              rules::Settings of_part = settings;
              if (p.decays == 0) of_part.weight_decay = 0;
              const View1<const double> factor(factors.data() + p.array, 1);
              kernels::UpdateRanges whole = whole_update(p.elements);
              whole.only.decays = p.decays;
              testing::run_pass<T>(name, {x.w_of(p), x.g_of(p), x.m_of(p), x.v_of(p), factor},
                                   of_part, 1e-2, this->control_.flat(), whole);
            });
      }
    }
}

/// Three layers of 1, 5 and 4096 experts; a skipped step changes nothing.
TYPED_TEST(RangedUpdates, ExpertsMoveTowardsTheMeanAndLoadsAreRelativeToIt) {
  using T = TypeParam;
  std::vector<UpdateRange> ranges;
  std::vector<double> counts, weights, expected, loads;
  for (const std::int64_t n : {1, 5, 4096}) {
    UpdateRange& range = ranges.emplace_back();
    range.first_chunk = std::ssize(ranges) - 1;
    range.elements = n;
    range.weight = std::ssize(weights);
    range.gradient = std::ssize(counts) + 3;
    counts.insert(counts.end(), 3, 1000);  // not of these layers
    double mean = 0;
    for (std::int64_t e = 0; e < n; ++e) {
      counts.push_back(static_cast<double>(e % 5 * (e % 3)));
      mean += counts.back() / static_cast<double>(n);
    }
    for (std::int64_t e = 0; e < n; ++e) {
      const double count = counts[counts.size() - at(n) + at(e)];
      weights.push_back(0.5);
      const bool equal = std::abs(count - mean) < 1e-9;
      expected.push_back(0.5 + (equal ? 0 : count < mean ? 0.125 : -0.125));
      loads.push_back(mean > 0 ? count / mean : 1);
    }
  }
  const DeviceArray<UpdateRange> table(ranges);
  const kernels::UpdateRanges parts{table.flat(), std::ssize(ranges), {}};
  for (const bool proceeds : {false, true}) {
    const DeviceArray<T> w(weights), n(counts);
    const DeviceArray<double> control(
        std::vector<double>{proceeds ? 1.0 : 0.0, 0.7, 0.1, 0.05, 3, 1});
    balance_update<T>(Exec{}, w.flat(), n.flat(), 0.125, control.flat(), parts);
    EXPECT_EQ(w.values(), DeviceArray<T>(proceeds ? expected : weights).values());
    EXPECT_EQ(n.values(), DeviceArray<T>(counts).values());
    load_update<T>(Exec{}, w.flat(), n.flat(), control.flat(), parts);
    const std::vector<T> found = w.values();
    for (std::size_t i = 0; proceeds && i < found.size(); ++i)
      EXPECT_NEAR(found[i], loads[i], 1e-6 * loads[i]);
    if (!proceeds) {
      EXPECT_EQ(found, DeviceArray<T>(weights).values());
    }
  }
}

/// Masters are at the places of updated weights, the model's weights at those of rounded ones.
TEST(RoundWeights, RoundsEveryPartAndKeepsTheGaps) {
  const Places places;
  const DeviceArray<UpdateRange> table(places.parts);
  const kernels::UpdateRanges parts{table.flat(), places.chunks, {}};
  const DeviceArray<float> masters(random_numbers<float>(places.room, 1));
  const DeviceArray<Bf16> weights(places.room, Bf16(-3.0F));
  round_weights<Bf16, float>(Exec{}, weights.flat(), masters.flat(), parts);
  std::vector<Bf16> expected(static_cast<std::size_t>(places.room), Bf16(-3.0F));
  const auto from = masters.values();
  for (const UpdateRange& p : places.parts)
    for (std::int64_t i = 0; i < p.elements; ++i)
      expected[static_cast<std::size_t>(p.rounded + i)] =
          Bf16(from[static_cast<std::size_t>(p.weight + i)]);
  const auto found = weights.values();
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(static_cast<float>(found[i]), static_cast<float>(expected[i])) << i;
}

}  // namespace
}  // namespace trireme::kernels
