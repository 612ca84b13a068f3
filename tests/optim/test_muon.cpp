// Muon against an implementation with plain loops in double precision.
#include <trireme/architecture/hidden_matrices.hpp>
#include <trireme/optim/learning_rate.hpp>

#include "optim/rig.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme::optim {
namespace {

using namespace trireme::testing;
using Numbers = std::vector<double>;

deck::OptimizerConfig muon() {
  deck::OptimizerConfig o = golden_optimizer();
  o.kind = OptimizerKind::muon;
  o.momentum = 0.95;
  o.nesterov = true;
  return o;
}

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// a [n, k] times b [k, m].
Numbers product(const Numbers& a, const Numbers& b, std::int64_t n, std::int64_t k,
                std::int64_t m) {
  Numbers c(at(n * m));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t l = 0; l < k; ++l)
      for (std::int64_t j = 0; j < m; ++j) c[at(i * m + j)] += a[at(i * k + l)] * b[at(l * m + j)];
  return c;
}

Numbers transposed(const Numbers& a, std::int64_t n, std::int64_t m) {
  Numbers b(a.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j) b[at(j * n + i)] = a[at(i * m + j)];
  return b;
}

/// Jordan et al. 2024: always with X Xᵀ of a matrix that is not taller than wide.
Numbers orthogonalised(Numbers x, std::int64_t n, std::int64_t m, std::int64_t steps) {
  const bool tall = n > m;
  if (tall) {
    x = transposed(x, n, m);
    std::swap(n, m);
  }
  double square = 0;
  for (const double v : x) square += v * v;
  for (double& v : x) v /= std::sqrt(square) + 1e-7;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Numbers a = product(x, transposed(x, n, m), n, m, n);
    const Numbers square_of_a = product(a, a, n, n, n);
    Numbers b(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * square_of_a[i];
    const Numbers bx = product(b, x, n, n, m);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + bx[i];
  }
  return tall ? transposed(x, n, m) : x;
}

/// Updates of one array in five steps.
struct Naive {
  Numbers m, v;

  void muon_step(const deck::OptimizerConfig& o, double rate, Numbers& w, const Numbers& g,
                 std::int64_t rows, std::int64_t columns) {
    m.resize(w.size());
    Numbers direction(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = o.momentum * m[i] + g[i];
      direction[i] = o.nesterov ? g[i] + o.momentum * m[i] : m[i];
    }
    const std::int64_t each = rows * columns;
    const auto n = static_cast<double>(rows), k = static_cast<double>(columns);
    const double factor = o.muon_rate_factor * (o.muon_scale == MuonScale::match_adamw
                                                    ? 0.2 * std::sqrt(std::max(n, k))
                                                    : std::sqrt(std::max(1.0, n / k)));
    for (std::int64_t first = 0; first < std::ssize(w); first += each) {
      const Numbers part(direction.begin() + first, direction.begin() + first + each);
      const Numbers u = orthogonalised(part, rows, columns, o.newton_schulz_steps);
      for (std::int64_t i = 0; i < each; ++i) {
        double& x = w[at(first + i)];
        x -= rate * (factor * u[at(i)] + o.weight_decay * x);
      }
    }
  }

  void adamw_step(const deck::OptimizerConfig& o, double rate, int update, bool decay, Numbers& w,
                  const Numbers& g) {
    m.resize(w.size());
    v.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(o.beta1, update));
      const double v_hat = v[i] / (1 - std::pow(o.beta2, update));
      w[i] -= rate * (m_hat / (std::sqrt(v_hat) + o.epsilon) + (decay ? o.weight_decay : 0) * w[i]);
    }
  }
};

void expect_five_steps(const deck::OptimizerConfig& config,
                       const deck::ModelConfig& model = golden_model()) {
  Rig rig(2, false, config, model);
  const auto& entries = rig.parameters.entries();
  const architecture::MatrixRounds matrices(rig.architecture, rig.parameters.shard(),
                                            rig.parameters.rank_arrays(), 1);
  std::vector<Naive> naive(entries.size());
  for (int step = 1; step <= 5; ++step) {
    rig.pass(step);
    std::vector<Numbers> weights, gradients;
    double squares = 0;
    for (const auto& entry : entries) {
      weights.push_back(values_of(entry.weight.data));
      gradients.push_back(values_of(entry.gradient.data));
      for (const double g : gradients.back()) squares += g * g;
    }
    const double clip = std::min(1.0, config.clip_norm / (std::sqrt(squares) + 1e-6));
    const double rate = learning_rate(config, step);
    rig.update(step, rate);
    for (std::size_t a = 0; a < entries.size(); ++a) {
      for (double& g : gradients[a]) g *= clip;
      const auto found =
          std::ranges::find(matrices.matrices(), a, &architecture::HiddenMatrix::local);
      if (found != matrices.matrices().end())
        naive[a].muon_step(config, rate, weights[a], gradients[a], found->rows, found->columns);
      else
        naive[a].adamw_step(config, rate, step, entries[a].spec->decay, weights[a], gradients[a]);
      const Numbers updated = values_of(entries[a].weight.data);
      // Five iterations amplify the rounding of small singular values by at most 3.4445^5 = 485.
      for (std::size_t i = 0; i < updated.size(); ++i)
        ASSERT_NEAR(updated[i], weights[a][i], 1e-11) << entries[a].spec->name << ", step " << step;
    }
  }
}

TEST(Muon, FiveStepsMatchPlainLoops) {
  expect_five_steps(muon());
  auto spectral = muon();
  spectral.muon_scale = MuonScale::spectral;
  spectral.nesterov = false;
  spectral.muon_rate_factor = 3;
  spectral.newton_schulz_steps = 2;
  expect_five_steps(spectral);
}

TEST(Muon, EachExpertHasItsOwnMatrices) {
  deck::ModelConfig model = golden_model();
  model.biases = Biases::none;
  model.experts.number = 3;
  model.experts.active = 2;
  model.experts.feed_forward = 8;
  model.experts.first_layer = 1;
  expect_five_steps(muon(), model);
}

TEST(Muon, MatricesHaveNoSecondMoment) {
  Rig rig(golden_batch, false, muon());
  std::size_t matrices = 0;
  for (const auto& block : rig.optimizer.state()) {
    const auto& local = rig.parameters.entries()[block.local].local;
    EXPECT_EQ(block.arrays.size(), local.matrix == rules::Matrices::hidden ? 1u : 2u);
    EXPECT_TRUE(block.arrays.front().name.starts_with("optimizer.momentum."));
    matrices += local.matrix == rules::Matrices::hidden ? 1 : 0;
  }
  EXPECT_GT(matrices, 0u);
  Rig adamw(golden_batch, false);
  EXPECT_LT(rig.optimizer.state_bytes(), adamw.optimizer.state_bytes() * 0.7);
}

}  // namespace
}  // namespace trireme::optim
