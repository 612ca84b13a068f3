#include <trireme/commands/plan/plan_report.hpp>
namespace trireme::commands {
std::string plan_page(const PlanReport&) {
  return "";
}
}  // namespace trireme::commands
