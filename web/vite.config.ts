import { readFileSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// Names of built files are stable, so that a change of the page shows as a change of the
// files that it touches. Browsers ask with If-None-Match each time.
export default defineConfig({
  plugins: [
    svelte(),
    {
      name: 'icon', // in the page itself, without a request of its own
      transformIndexHtml: (html) =>
        html.replace(
          '"/icon.svg"',
          `"data:image/svg+xml,${encodeURIComponent(readFileSync('public/icon.svg', 'utf8'))}"`,
        ),
    },
  ],
  build: {
    target: 'es2023',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    chunkSizeWarningLimit: 1500,
    rollupOptions: {
      output: {
        entryFileNames: 'assets/[name].js',
        chunkFileNames: 'assets/[name].js',
        assetFileNames: 'assets/[name][extname]',
        // The program and all that it is made of are one file: what one sees first takes few requests.
        codeSplitting: { groups: [{ name: 'sluice', test: /src.main\.ts$/ }] },
      },
    },
  },
});
