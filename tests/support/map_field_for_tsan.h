// google/protobuf/map_field.h without the members that it has under ThreadSanitizer: Debian's
// library is built without it and expects the others at other offsets. Included first in builds
// with it (proto/CMakeLists.txt).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
