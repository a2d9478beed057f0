#include "runtime/structured/grammar.h"

#include <gtest/gtest.h>
TEST(Placeholder, X) {}
