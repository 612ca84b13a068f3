#include <trireme/architecture/matrix_axes.hpp>

#include <trireme/base/alignment.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>
#include <map>
#include <string>

namespace trireme::architecture {

std::vector<MatrixAxes> matrix_axes(const Architecture& architecture) {
  // Arrays [outputs, split, inner] of products whose inputs tensor ranks divide.
  std::map<std::string, Cut> cuts;
  for (const BlockDescription& layer : architecture.layer_kinds())
    for (const Operation& op : layer.operations)
      if (op.kind == OperationKind::linear)
        for (const ArraySpec& array : op.arrays) cuts[array.name] = op.cut;
  std::vector<MatrixAxes> axes;
  for (const ArraySpec& spec : architecture.arrays) {
    const std::size_t n = spec.shape.size();
    const auto cut = cuts.find(spec.name.substr(architecture.block(spec.block).prefix.size()));
    if (n < 2)
      axes.push_back({0, n});
    else if (spec.of_experts())
      axes.push_back({n - 2, n - 1});
    else if (spec.tensor_cut() == nullptr || (cut != cuts.end() && cut->second == Cut::inputs))
      axes.push_back({0, 1});
    else
      axes.push_back(
          {std::min(static_cast<std::size_t>(spec.tensor_cut()->dimension), n - 2), n - 1});
  }
  return axes;
}

std::vector<std::int64_t> factor_shape(const std::vector<std::int64_t>& shape,
                                       const MatrixAxes& axes, rules::Shape of) {
  const auto begin = shape.begin();
  const auto row = begin + static_cast<std::ptrdiff_t>(axes.row);
  const auto column = begin + static_cast<std::ptrdiff_t>(axes.column);
  if (of == rules::Shape::rows) return {begin, column};
  std::vector<std::int64_t> columns(begin, row);
  columns.insert(columns.end(), column, shape.end());
  return columns;
}

Factors factors(const Architecture& architecture, const std::vector<RankArray>& arrays,
                const deck::OptimizerConfig& optimizer) {
  Factors all;
  const rules::Description& rule = optimizer.rule();
  if (!rule.has(rules::PassKind::means, optimizer)) return all;
  const std::vector<MatrixAxes> axes = matrix_axes(architecture);
  for (std::size_t local = 0; local < arrays.size(); ++local) {
    const RankArray& array = arrays[local];
    if (array.frozen || !rules::as_matrices(rule.matrices, array.matrix)) continue;
    const std::vector<std::int64_t>& shape = architecture.arrays[array.number].shape;
    const auto [row, column] = axes[array.number];
    const std::size_t end = shape.size();
    // Number of the slice's first matrix, row or column. Only the first of its axes may be split.
    const auto first = [&](std::size_t from, std::size_t to) {
      if (from == to) return std::int64_t{0};
      for (std::size_t a = from + 1; a < to; ++a)
        check(array.extent[a] == shape[a], architecture.arrays[array.number].name, ": axis ", a,
              " of its matrices is divided");
      return array.offset[from] * product(shape, from + 1, to);
    };
    FactoredArray f;
    f.local = local;
    f.matrices = product(shape, 0, row);
    f.rows = product(shape, row, column);
    f.columns = product(shape, column, end);
    f.local_rows = product(array.extent, row, column);
    f.local_columns = product(array.extent, column, end);
    f.first_matrix = first(0, row);
    f.first_row = first(row, column);
    f.first_column = first(column, end);
    f.row_state = all.rows;
    f.column_state = all.columns;
    all.rows += aligned_elements(f.matrices * f.rows);
    all.columns += aligned_elements(f.matrices * f.columns);
    all.arrays.push_back(f);
  }
  return all;
}

}  // namespace trireme::architecture
