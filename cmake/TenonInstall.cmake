# The packages Tenon (embedding) and TenonSDK (plugins). Nothing in them names a folder of the build, so that the tree
# can move.
include(CMakePackageConfigHelpers)

function(tenon_install_package package target)
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/${package})
  install(TARGETS ${target} EXPORT ${package}Targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ${package}Targets NAMESPACE tenon:: DESTINATION ${folder})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/${package}Config.cmake.in
    ${PROJECT_BINARY_DIR}/${package}Config.cmake INSTALL_DESTINATION ${folder} NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/${package}ConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/${package}Config.cmake ${PROJECT_BINARY_DIR}/${package}ConfigVersion.cmake ${ARGN}
    DESTINATION ${folder})
endfunction()

tenon_install_package(TenonSDK tenon_sdk ${PROJECT_SOURCE_DIR}/sdk/cmake/TenonPlugin.cmake
  ${PROJECT_SOURCE_DIR}/sdk/cmake/plugin.map)
if(TARGET tenon_gemm)
  install(TARGETS tenon_gemm EXPORT TenonSDKTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
tenon_install_package(Tenon tenon_core)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/include/ ${PROJECT_SOURCE_DIR}/core/include/
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh" PATTERN "*.rs")

# A plugin's author reads these and starts from them: `tenon plugin new` copies the templates.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/template DESTINATION ${CMAKE_INSTALL_DATADIR}/tenon USE_SOURCE_PERMISSIONS)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/tenon USE_SOURCE_PERMISSIONS)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
# One whole plugin of each kind.
foreach(plugin attention/reference draft/ngram kv_cache/static op/rms_norm quantization/int8wo sampler/min_p scheduler/lockstep)
  if(EXISTS ${PROJECT_SOURCE_DIR}/plugins/${plugin})
    get_filename_component(kind ${plugin} DIRECTORY)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/plugins/${plugin} DESTINATION ${CMAKE_INSTALL_DATADIR}/tenon/examples/plugins/${kind})
  endif()
endforeach()
