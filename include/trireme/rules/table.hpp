#pragma once

#include <trireme/rules/adafactor.hpp>
#include <trireme/rules/adamw.hpp>
#include <trireme/rules/kinds.hpp>
#include <trireme/rules/lamb.hpp>
#include <trireme/rules/lars.hpp>
#include <trireme/rules/lion.hpp>
#include <trireme/rules/muon.hpp>
#include <trireme/rules/sgd.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace trireme::rules {

/// All rules, in the order of OptimizerKind.
using Table = std::tuple<AdamW, Sgd, Lamb, Lars, Muon, Adafactor, Lion>;

/// Calls f(std::type_identity<T>{}) for the type with number `number` of a tuple of types.
template <class Tuple, class F>
void visit_type(std::size_t number, const F& f) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    ((i == number ? f(std::type_identity<std::tuple_element_t<i, Tuple>>{}) : void()), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<Tuple>>{});
}

/// Calls f(std::type_identity<R>{}) for the rule R of a kind.
template <class F>
void visit(OptimizerKind kind, const F& f) {
  visit_type<Table>(static_cast<std::size_t>(kind), f);
}

}  // namespace trireme::rules
