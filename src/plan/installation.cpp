#include <trireme/plan/installation.hpp>
#include <trireme/plan/precision.hpp>
#include <trireme/plan/transport.hpp>

namespace trireme::plan {

void expect_installation(const deck::Deck& deck) {
  expect_transport(deck);
  expect_attention(deck);
}

}  // namespace trireme::plan
