#include "runtime/chat/jinja/template.h"

#include <gtest/gtest.h>
