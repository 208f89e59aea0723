// Package oracletest has what stands in for an Oracle in tests: a grammar of PL/SQL and a lint for what it
// lets through, MariaDB in Oracle mode behind a driver that takes Oracle's placeholders, and a fake of
// Oracle's driver. None of them is an Oracle.
package oracletest
