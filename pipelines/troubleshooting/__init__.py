"""The page of what an operator may see, with cause and remedy, written from the messages and checks of the code.

Add here how a text of the code is found and shown. Keep out the texts themselves: a remedy is in the message or in the
metadata of its check. What only the page has, the order and what a reader would search for, is in sections.yml.
"""
