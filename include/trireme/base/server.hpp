#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

/// How replicas share their updates: all of them sum the gradients, or servers hold the weights
/// (Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server").
enum class DataStrategy : std::uint8_t { all_reduce, server };
/// Gradients of one update of the servers: those of all workers of a step, or those that one worker
/// pushes.
enum class ServerUpdates : std::uint8_t { step, push };

std::string_view name_of(DataStrategy);
std::string_view name_of(ServerUpdates);

template <>
std::span<const std::string_view> names<DataStrategy>();
template <>
std::span<const std::string_view> names<ServerUpdates>();

}  // namespace trireme
