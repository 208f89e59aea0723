// Package script has the scripts that decide in Redis, in parts, and puts them together.
//
// Three scripts are made of the parts: common.lua for windows and buckets, full.lua for everything, and envoy.lua for
// layout=envoy. A line "--@include PART" stands for the text of that part, and a name of constants.lua for its value.
// The head of each part says what it makes and what it uses: a test holds that true. [Script.Locate] says in which line
// of which part an error of Redis is.
package script
