# Warnings and sanitizers, as interface targets so that nothing is global. GCC 12's -Wrestrict misfires on "text" + std::string
# (GCC bug 105651).
add_library(tenon_warnings INTERFACE)
target_compile_options(tenon_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual -Wundef
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  $<$<BOOL:${TENON_WERROR}>:-Werror>)

if(TENON_SANITIZE)
  # GCC 12 takes the sanitizers' own code for reads of what was never written.
  target_compile_options(tenon_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_compile_options(-fsanitize=${TENON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TENON_SANITIZE})
endif()
