// Checks the syntax of PL/SQL by its ANTLR grammar.
//
//   plsql-check FILE...          checks files
//   plsql-check < LIST           checks a JSON list of {"name": ..., "text": ...}
//   plsql-check --version        tells the version of the grammar
//
// Every error is a line "name:line:column message" on standard output; lines
// count from 1, columns from 0. It exits with 0 if there is no error, 1 if there
// are some, and 2 if it could not check.
'use strict';

const fs = require('fs');

// inputs returns what is to be checked.
function inputs(files) {
  if (files.length > 0) {
    return files.map((name) => ({ name, text: fs.readFileSync(name, 'utf8') }));
  }
  const list = JSON.parse(fs.readFileSync(0, 'utf8'));
  if (!Array.isArray(list) || !list.every((i) => typeof i.name === 'string' && typeof i.text === 'string')) {
    throw new Error('standard input is not a JSON list of {"name": ..., "text": ...}');
  }
  return list;
}

// grammar loads the grammar, which takes most of a second.
function grammar() {
  // The runtime has to be loaded before the grammars.
  require('antlr4ts');
  const { antlr4tsSQL, SQLDialect } = require('antlr4ts-sql');
  return new antlr4tsSQL(SQLDialect.PLSQL);
}

// errorsOf parses one text. The package's own getParseTreeFromSQL would not call
// the listener, so its steps are taken one by one.
function errorsOf(sql, text) {
  const errors = [];
  const lines = text.split('\n');
  const listener = {
    syntaxError: (_recognizer, _symbol, line, column, message) => errors.push(`${line}:${column} ${readable(message, lines[line - 1], column)}`),
  };
  const tokens = sql.getTokens(ended(text), [listener]);
  sql.getParseTree(sql.getParser(tokens, [listener]));
  return errors;
}

// ended ends the last statement, as the grammar wants it. What follows it may be a
// comment up to the end of the line.
function ended(text) {
  const statements = text.replace(/'[^']*'|--.*$|\/\*[^]*?\*\//gm, (part) => (part[0] === "'" ? "''" : '')).trimEnd();
  return /[;/]$/.test(statements) ? `${text}\n` : `${text}\n;\n`;
}

// readable shortens a message of the parser, which lists every word that could
// follow and has numbers for those that are there.
function readable(message, line, column) {
  const what = message.replace(/'<\d+>'/g, 'this').replace(/ expecting \{[^]{200,}\}$/, '');
  const there = (line || '').slice(column, column + 30).trim();
  return `${what}, at ${there === '' ? 'the end' : JSON.stringify(there)}`;
}

function main(args) {
  if (args[0] === '--version') {
    console.log(require('antlr4ts-sql/package.json').version);
    return 0;
  }
  const texts = inputs(args);
  const sql = grammar();
  let status = 0;
  for (const { name, text } of texts) {
    for (const error of errorsOf(sql, text)) {
      console.log(`${name}:${error}`);
      status = 1;
    }
  }
  return status;
}

try {
  process.exitCode = main(process.argv.slice(2));
} catch (error) {
  console.error(`plsql-check: ${error.message}`);
  process.exitCode = 2;
}
