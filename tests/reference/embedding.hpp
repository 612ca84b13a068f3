#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::reference {

inline std::vector<double> embedding(const std::vector<std::int32_t>& tokens,
                                     const std::vector<double>& table,
                                     const std::vector<double>& positions, std::size_t hidden) {
  const std::size_t sequence = positions.size() / hidden;
  std::vector<double> x;
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::size_t d = 0; d < hidden; ++d)
      x.push_back(table[static_cast<std::size_t>(tokens[t]) * hidden + d] +
                  positions[t % sequence * hidden + d]);
  return x;
}

/// For each token id, the sum of the rows of dx whose token has this id: [vocabulary, hidden].
inline std::vector<double> embedding_transposed(const std::vector<std::int32_t>& tokens,
                                                const std::vector<double>& dx,
                                                std::size_t vocabulary, std::size_t hidden) {
  std::vector<double> table(vocabulary * hidden);
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::size_t d = 0; d < hidden; ++d)
      table[static_cast<std::size_t>(tokens[t]) * hidden + d] += dx[t * hidden + d];
  return table;
}

}  // namespace trireme::reference
