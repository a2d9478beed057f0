# Run by `cpack -G DEB` when all files are in its folder: what only a Debian package has, for lintian.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
set(doc ${share}/doc/bulkhead)
file(WRITE ${doc}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2026 the Bulkhead authors
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
")
file(WRITE ${doc}/changelog "bulkhead (${CPACK_DEBIAN_PACKAGE_VERSION}) unstable; urgency=medium

  * Made from the sources of this version.

 -- ${CPACK_PACKAGE_CONTACT}  ${BULKHEAD_PACKAGE_DATE}
")
foreach(file ${doc}/changelog ${share}/man/man1/bulkhead.1)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
