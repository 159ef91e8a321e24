// Puts back what a scope changes, also when it is left by an exception.
#pragma once

#include <utility>

namespace tilekernels::cases {

/// Calls `action` at the end of the scope. It must not throw.
template <class Action>
class ScopeExit {
 public:
  explicit ScopeExit(Action action) : action_(std::move(action)) {}
  ~ScopeExit() { action_(); }
  ScopeExit(const ScopeExit&) = delete;
  ScopeExit& operator=(const ScopeExit&) = delete;

 private:
  Action action_;
};

}  // namespace tilekernels::cases
