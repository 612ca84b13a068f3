#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Copies of tokens for the replicas that divide the experts among them. Templates are instantiated
/// for float and double.
namespace trireme::kernels {

/// Division of E experts among e replicas of t tensor ranks each, in parts as in layout::split():
/// part j · t + i belongs to tensor rank i of replica j.
struct ExpertParts {
  std::int64_t experts = 1;       ///< E
  std::int64_t replicas = 1;      ///< e
  std::int64_t tensor_ranks = 1;  ///< t
  std::int64_t tensor_rank = 0;   ///< this rank's i
};

/// Lists the tokens that have an expert on this tensor rank of each replica: replica j needs the
/// tokens order[bounds[j]] … order[bounds[j + 1] − 1], ascending. A token occurs at most once for a
/// replica. bounds [e + 1], order [≥ T min(k, e)]; elements from bounds[e] on stay unchanged.
/// routes [T, 2k] as in experts.hpp. Asynchronous on exec.
template <class A>
void list_copies(const Exec& exec, View1<std::int32_t> order, View1<std::int32_t> bounds,
                 View2<const A> routes, const ExpertParts& parts);

}  // namespace trireme::kernels
