# Installs the library, its headers, the command and the CMake package tilekernels::tilekernels.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS tilekernels EXPORT tilekernelsTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/tilekernels DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tilekernelsTargets NAMESPACE tilekernels::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tilekernels)
configure_package_config_file(cmake/tilekernelsConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tilekernelsConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tilekernels)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tilekernelsConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tilekernelsConfig.cmake
              ${PROJECT_BINARY_DIR}/tilekernelsConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tilekernels)
if(TILEKERNELS_BUILD_TOOLS)
  install(TARGETS tilekernels_tool DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Highway is a shared library on Debian: the command carries it, so that it runs elsewhere.
get_target_property(hwy_library hwy::hwy LOCATION)
get_target_property(hwy_type hwy::hwy TYPE)
if(TILEKERNELS_BUILD_TOOLS AND hwy_type STREQUAL "SHARED_LIBRARY")
  file(REAL_PATH ${hwy_library} hwy_file)
  get_filename_component(hwy_name ${hwy_file} NAME)
  string(REGEX REPLACE "(\\.so\\.[0-9]+).*" "\\1" hwy_soname ${hwy_name})
  install(FILES ${hwy_file} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME ${hwy_soname})
  set_target_properties(tilekernels_tool PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()
