// What the page is drawn with: Preact, and htm for templates. Whatever is put into a template is text, never markup.

import { Component, Fragment, createContext, h, render } from "../vendor/preact.js";
import {
  useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "../vendor/hooks.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);

export {
  Component, Fragment, createContext, h, render,
  useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useReducer, useRef, useState,
};
